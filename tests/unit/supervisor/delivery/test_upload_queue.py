"""The queue of an uploader, which thousands of checkpoints may fill in an outage."""

from pathlib import Path

from instruction_count import instructions

from hostcore.supervisor.delivery.units import Turn, Unit, UnitFile
from hostcore.supervisor.delivery.upload_queue import Task, UploadQueue


def a_task(number: int, turn: Turn = Turn.USUAL) -> Task:
    name = f"checkpoints/step-{number:06d}"
    file = UnitFile(kind="checkpoint", path=Path("/x"), relative_path=f"{name}/host.json", size=1)
    unit = Unit(kind="checkpoint", name=name, version="1", files=(file,), turn=turn)
    return Task(unit=unit, left=[file], seal=None)


def empty(queue: UploadQueue) -> list[str]:
    """Take one file after the other, as one thread does to which everything arrives."""
    names = []
    while (found := queue.next(0.0, busy=set(), probing=False)) is not None:
        task, file = found
        task.begin(file)
        assert queue.find(task.unit) is task
        queue.remove(task)
        names.append(task.unit.name)
    return names


def test_first_comes_first_and_last_comes_last_whenever_they_are_added() -> None:
    queue = UploadQueue()
    last, usual, first = a_task(1, Turn.LAST), a_task(2), a_task(3, Turn.FIRST)
    for task in (last, usual, a_task(4), first):
        queue.add(task)
    assert [task.unit.step or task.unit.name[-1] for task in queue] == ["3", "2", "4", "1"]
    assert [name[-1] for name in empty(queue)] == ["3", "2", "4", "1"]
    assert not queue


def test_what_is_taken_out_is_not_there_any_more() -> None:
    queue, task = UploadQueue(), a_task(1)
    queue.add(task)
    assert task in queue
    assert queue.clear() == [task]
    assert task not in queue
    assert queue.find(task.unit) is None


def test_each_of_many_is_as_much_work_as_each_of_few() -> None:
    def work(count: int) -> int:
        queue, tasks = UploadQueue(), [a_task(number) for number in range(count)]

        def fill_and_empty() -> None:
            for task in tasks:
                queue.add(task)
            empty(queue)

        return instructions(fill_and_empty)

    assert work(400) < 4.5 * work(100)
