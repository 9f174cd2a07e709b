/**
 * Cuts the items of the array under a top-level key out of a JSON object's text, each as it was
 * written, so that big integers reach the reader untouched. `text` must be valid JSON; a missing key gives none.
 */
export function sliceArrayItems(text: string, key: string): string[] {
  const items: string[] = [];
  let depth = 0;
  let isInside = false;
  let itemStart = -1;
  let lastString = '';
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === '"') {
      const end = findStringEnd(text, at);
      if (depth === 1) lastString = text.slice(at + 1, end);
      if (isInside && depth === 2 && itemStart < 0) itemStart = at;
      at = end;
    } else if (char === '{' || char === '[') {
      if (isInside && depth === 2 && itemStart < 0) itemStart = at;
      if (depth === 1 && char === '[' && lastString === key) isInside = true;
      depth++;
    } else if (char === '}' || char === ']' || char === ',') {
      const closes = char !== ',';
      if (isInside && depth === 2 && itemStart >= 0) {
        items.push(text.slice(itemStart, at).trimEnd());
        itemStart = -1;
      }
      if (closes) depth--;
      if (isInside && depth < 2) return items;
    } else if (
      isInside &&
      depth === 2 &&
      itemStart < 0 &&
      char !== ' ' &&
      char !== '\n' &&
      char !== '\r' &&
      char !== '\t'
    ) {
      itemStart = at;
    }
  }
  return items;
}

function findStringEnd(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (end > 0) {
    let backslashes = 0;
    while (text[end - 1 - backslashes] === '\\') backslashes++;
    if (backslashes % 2 === 0) return end;
    end = text.indexOf('"', end + 1);
  }
  return text.length;
}
