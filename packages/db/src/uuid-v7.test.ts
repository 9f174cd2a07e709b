import { describe, expect, it } from 'vitest';
import { createUuidV7, isUuid } from './uuid-v7.ts';

describe('UUIDs of version 7', () => {
  it('begin with the time of RFC 9562 and hold version and variant', () => {
    // The time of the example in RFC 9562, appendix A.6.
    expect(createUuidV7(0x01_7f_22_e2_79_b0)).toMatch(
      /^017f22e2-79b0-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
  });

  it('sort by time and are all different', () => {
    expect(createUuidV7(1_000) < createUuidV7(1_001)).toBe(true);
    expect(new Set(Array.from({ length: 1_000 }, () => createUuidV7(5))).size).toBe(1_000);
  });

  it('are told from other texts', () => {
    expect(isUuid(createUuidV7(Date.now()))).toBe(true);
    for (const text of ['', 'x', `${createUuidV7(0)}0`, createUuidV7(0).toUpperCase().replace('-7', '-A')]) {
      expect(isUuid(text)).toBe(false);
    }
  });
});
