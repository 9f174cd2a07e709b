import { randomBytes } from 'node:crypto';

const SLUG_LENGTH_MAX = 60;

/**
 * A slug from a name: lower-case letters, digits and single hyphens, at most 60; accents are dropped. A name that
 * leaves nothing (in another script, say) gets random digits.
 */
export function slugify(name: string): string {
  const plain = name
    .normalize('NFKD')
    .replace(/\p{M}+/gu, '')
    .toLowerCase();
  const hyphened = plain.replace(/[^a-z0-9]+/g, '-').slice(0, SLUG_LENGTH_MAX);
  const slug = hyphened.replace(/^-+|-+$/g, '');
  return slug === '' ? randomBytes(4).toString('hex') : slug;
}
