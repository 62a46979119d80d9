/* Questions in a dialog, and notices in the corner of the page. */

import { $, el, say } from "./elements.js";

const NOTICE_MS = 8000;  // errors stay until they are dismissed

/** Shows a notice; kind "bad" is an error. */
export function tell(text, kind = "") {
  const line = el("div", { class: kind }, el("span", { text }));
  line.append(el("button", { text: "×", "aria-label": "Dismiss", onclick: () => line.remove() }));
  $("said").append(line);
  while ($("said").children.length > 4) $("said").firstChild.remove();
  if (kind !== "bad") setTimeout(() => line.remove(), NOTICE_MS);
}

/** Asks in a dialog. Returns the values of the fields by name, or null if it was cancelled.
 *
 *  `texts` are paragraphs. `check` may return why the values cannot be used; the dialog then stays open. */
export function ask({ title, texts, fields = [], confirm, isDangerous = false, error = "", check = () => "" }) {
  const dialog = $("dialog"), form = dialog.firstChild;
  const inputs = fields.map(({ name, label, ...options }) =>
    [el("label", { text: label }), el("input", { name, autocomplete: "off", ...options })]);
  for (const [label, input] of inputs) label.append(input);
  const problem = el("p", { class: "error", role: "alert", text: error });
  form.replaceChildren(el("h2", { text: title }), ...texts, ...inputs.map(([label]) => label), problem,
    el("div", { class: "buttons" }, el("button", { type: "button", text: "Cancel", onclick: () => dialog.close() }),
      el("button", { type: "submit", text: confirm, class: isDangerous ? "danger" : "" })));
  return new Promise(resolve => {
    let found = null;
    form.onsubmit = event => {
      event.preventDefault();
      const values = Object.fromEntries(inputs.map(([, input]) => [input.name, input.value.trim()]));
      const wrong = check(values);
      say(problem, wrong);
      if (!wrong) { found = values; dialog.close(); } else if (inputs.length) inputs[0][1].select();
    };
    dialog.onclose = () => resolve(found);
    dialog.showModal();
    if (inputs.length) inputs[0][1].focus();
  });
}

/** Asks for the name of what will be deleted, so that nobody deletes it by a wrong click. */
export function confirmByName(name, title, text, confirm) {
  return ask({
    title, texts: [el("p", { text })], confirm, isDangerous: true,
    fields: [{ name: "typed", label: `Type ${name} to confirm`, autocapitalize: "off", spellcheck: "false" }],
    check: values => values.typed === name ? "" : `The name is ${name}.`,
  });
}
