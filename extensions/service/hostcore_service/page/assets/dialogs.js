// The two questions that the page asks.

const field = (id) => document.getElementById(id);

// A promise of the token that the user enters; there is no way around it.
export const askForToken = (mistake) => new Promise((resolve) => {
  const dialog = field("token-dialog"), input = field("token-field");
  field("token-mistake").textContent = mistake;
  input.value = "";
  const refuse = (event) => event.preventDefault();
  const done = () => {
    const token = input.value.trim();
    // Headers carry nothing else.
    if (!/^[\x21-\x7e]+$/.test(token)) {
      field("token-mistake").textContent = "A token has printable ASCII characters only.";
      dialog.showModal();
      return;
    }
    dialog.removeEventListener("cancel", refuse);
    dialog.removeEventListener("close", done);
    resolve(token);
  };
  dialog.addEventListener("cancel", refuse);
  dialog.addEventListener("close", done);
  dialog.showModal();
});

// A promise of the reason why a job is cancelled ("" without one), or null: it is not.
export const askToCancel = (name) => new Promise((resolve) => {
  const dialog = field("cancel-dialog"), reason = field("cancel-reason");
  field("cancel-name").textContent = name;
  reason.value = "";
  dialog.returnValue = "";
  field("cancel-keep").onclick = () => dialog.close("");
  const done = () => resolve(dialog.returnValue === "cancel" ? reason.value.trim() : null);
  dialog.addEventListener("close", done, { once: true });
  dialog.showModal();
});
