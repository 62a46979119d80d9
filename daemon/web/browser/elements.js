/* Finds, makes and fills elements. Text is set only as textContent, so no name can become HTML. */

export const $ = id => document.getElementById(id);

/** A new element. `text` becomes its text, `onclick` and the like its listeners, the rest its attributes. */
export function el(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Sets a text only if it differs, so that the browser has nothing to lay out otherwise. */
export function say(element, text) { if (element.textContent !== text) element.textContent = text; }

/** Fills a <dl> with pairs of name and value. */
export function facts(list, pairs) {
  while (list.children.length < pairs.length) list.append(el("div", {}, el("dt"), el("dd")));
  while (list.children.length > pairs.length) list.lastChild.remove();
  pairs.forEach(([name, value], place) => {
    say(list.children[place].children[0], name);
    say(list.children[place].children[1], value);
  });
}

/** Shows badges: pairs of text and kind ("bad", "warn", "good" or ""). */
export function badges(parent, found) {
  replaceIfNew(parent, found.flatMap(([text, kind]) => [el("span", { class: `badge ${kind}`, text }), " "]));
}

/** Replaces the children only if they differ, so that a reader's selection and focus stay. */
export function replaceIfNew(parent, children) {
  const text = children.map(child => typeof child === "string" ? child : child.className + child.textContent).join("\n");
  if (parent.dataset.shown === text) return;
  parent.dataset.shown = text;
  parent.replaceChildren(...children);
}

/** Marks a pane whose end is not in view (class `more`), now, and whenever it is scrolled or changes its size. */
export function markMore(pane) {
  const look = () => pane.classList.toggle("more", pane.scrollHeight - pane.scrollTop - pane.clientHeight > 4);
  pane.addEventListener("scroll", look, { passive: true });
  const watch = new ResizeObserver(look);
  for (const element of [pane, ...pane.children]) watch.observe(element);
  look();
}
