// Elements of the page. Text from outside becomes text nodes and nothing else: no markup is ever parsed here.

const SVG = 'http://www.w3.org/2000/svg'

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value)
    else if (name === 'value' || name === 'checked') node[name] = value
    else node.setAttribute(name, value === true ? '' : String(value))
  }
  node.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false))
  return node
}

/** An HTML element: `on...` are listeners, the rest attributes; nothing stands for what is absent. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children)
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children)
}

/** Text of somebody else: of either writing direction, and not endless. */
export function foreign(text, longest = 4096) {
  const whole = String(text ?? '')
  return h('bdi', null, whole.length > longest ? whole.slice(0, longest) + ' …' : whole)
}

/** Sets a text only where it changed, so that nothing is drawn or read out again for nothing. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text
}

/** Swaps what is in a node. */
export function put(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false))
}

/**
 * Keeps one child of `parent` for each item: `make` builds `{node, update}` once, later `update` gets the item as it is.
 * Focus stays where it is, because nodes stay what they are.
 */
export function keyed(parent, make, keyOf = item => item.id) {
  const kept = new Map()
  return items => {
    const seen = new Set()
    let before = parent.firstElementChild
    for (const item of items) {
      const key = keyOf(item)
      seen.add(key)
      let part = kept.get(key)
      if (!part) kept.set(key, part = make(item))
      part.update(item)
      if (part.node === before) before = before.nextElementSibling
      else parent.insertBefore(part.node, before)
    }
    for (const [key, part] of kept) {
      if (seen.has(key)) continue
      part.node.remove()
      kept.delete(key)
    }
  }
}

/** A table in a region of its own that scrolls. On a telephone each row becomes a block, in which `headed` cells say what they are. */
export function table(name, heads, body) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': name },
    h('table', { class: 'stack' }, h('thead', null, h('tr', null, heads.map(head => head ? h('th', { scope: 'col' }, head) : h('td')))), body))
}

export function headed(heads, row) {
  heads.forEach((head, at) => row.children[at]?.setAttribute('data-head', head))
  return row
}

/** Tells those who do not see the page, and for a while those who do. */
export function announce(text) {
  const said = document.getElementById('said')
  said.textContent = text
  clearTimeout(announce.timer)
  announce.timer = setTimeout(() => { said.textContent = '' }, 8000)
}

/** Asks before what cannot be taken back. Resolves to whether it is wanted. */
export function confirmed(question, details, verb) {
  return new Promise(resolve => {
    const dialog = h('dialog', { 'aria-labelledby': 'question' },
      h('form', { method: 'dialog' },
        h('h2', { id: 'question' }, question),
        h('p', null, details),
        h('p', { class: 'verbs' },
          h('button', { value: 'no', autofocus: true }, 'Leave it'),
          h('button', { value: 'yes', class: 'risky' }, verb))))
    dialog.addEventListener('close', () => {
      dialog.remove()
      resolve(dialog.returnValue === 'yes')
    })
    document.body.append(dialog)
    dialog.showModal()
  })
}

/** An error of the hub: what happened, and beside it what to do. */
export function problem(error) {
  return h('div', { class: 'problem', role: 'alert' },
    h('p', null, foreign(error.message)),
    error.hint && h('p', { class: 'hint' }, foreign(error.hint)))
}
