"""``python -m hostcore_inspect.doctor.device_probe cuda:0``: one accelerator at work."""

import sys

from hostcore.probe import Say, answer


def examine(say: Say) -> None:
    """Report the free memory of the device, and its products."""
    say(doing="importing torch")
    import torch

    from hostcore_inspect.doctor.product import check_products

    device = torch.device(sys.argv[1])
    say(doing=f"starting {device}")
    torch.ones(1, device=device).add_(1).cpu()
    if device.type == "cuda":
        torch.cuda.set_device(device)
        free, total = torch.cuda.mem_get_info(device)
        say(memory={"free_bytes": free, "total_bytes": total})
    check_products(device, say)


if __name__ == "__main__":
    answer(examine)
