/** C0 and C1 controls, separators of lines and paragraphs. */
const CONTROLS = /[\p{Cc}\u2028\u2029]+/gu;
/** Marks, embeddings, overrides and isolates that turn the order of text, and the invisible ones that hide in it. */
const INVISIBLE =
  /[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]/g;

/**
 * Text of users for one line of a mail: control characters become a space, those that reorder or hide text go, what is
 * longer than `lengthMax` characters is cut.
 */
export function toLine(text: string, lengthMax = 500): string {
  const line = text.toWellFormed().replace(CONTROLS, ' ').replace(INVISIBLE, '').trim();
  // Cut between characters, and not before a long text was made short.
  const characters = Array.from(line.slice(0, 2 * lengthMax + 2));
  return characters.length <= lengthMax ? line : `${characters.slice(0, lengthMax - 1).join('')}…`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** Text for an element or a quoted attribute of HTML. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? '');
}

/** A time as mails show it: `2026-11-21 19:45:01 UTC`. */
export function toTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}
