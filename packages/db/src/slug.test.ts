import { describe, expect, it } from 'vitest';
import { slugify } from './slug.ts';

describe('slugify', () => {
  it.each([
    ['My Company', 'my-company'],
    ['  Übung & Söhne GmbH  ', 'ubung-sohne-gmbh'],
    ['a__b--c', 'a-b-c'],
    ['Ünïcode', 'unicode'],
    ['x'.repeat(200), 'x'.repeat(60)],
    [`${'x'.repeat(59)} y`, 'x'.repeat(59)],
  ])('makes %j to %j', (name, slug) => {
    expect(slugify(name)).toBe(slug);
  });

  it('gives a name that leaves nothing a random slug', () => {
    expect(slugify('日本語')).toMatch(/^[0-9a-f]{8}$/);
    expect(slugify('日本語')).not.toBe(slugify('日本語'));
  });
});
