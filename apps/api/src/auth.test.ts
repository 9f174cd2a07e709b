import { ROLES } from '@logpond/schema/account';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hasRole, isUuid } from './auth.ts';

describe('hasRole', () => {
  it('each role includes those before it and none after it', () => {
    const table = ROLES.map((role) => ROLES.map((least) => hasRole(role, least)));
    expect(table).toEqual([
      [true, false, false, false],
      [true, true, false, false],
      [true, true, true, false],
      [true, true, true, true],
    ]);
  });
});

describe('isUuid', () => {
  it('lets through UUIDs and nothing that could reach another key of the store', () => {
    fc.assert(fc.property(fc.uuid(), (id) => isUuid(id) && isUuid(id.toUpperCase())));
    fc.assert(
      fc.property(
        fc.uuid(),
        fc.string({ minLength: 1 }),
        (id, more) => !isUuid(id + more) && !isUuid(more + id),
      ),
    );
    for (const text of ['', 'x', '../x', 'a:b', '*']) expect(isUuid(text)).toBe(false);
  });
});
