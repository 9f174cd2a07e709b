/** The `id` of an entry's JSON text; empty when there is none. */
export function readEntryId(entryJson: string): string {
  const value: unknown = JSON.parse(entryJson);
  const id = typeof value === 'object' && value !== null && 'id' in value ? value.id : undefined;
  return typeof id === 'string' ? id : '';
}

/**
 * Where an entry stands in the order of arrival of its project: epoch, then offset, read from its id
 * (UUID version 8: 48 bits time, version, 12 bits epoch, 2 bits variant, 8 bits shard, 48 bits offset,
 * 6 bits zero). -1 for any other id. Sorting by time would not do: an entry may arrive long after its time.
 */
export function arrivalOf(id: string): bigint {
  const hex = id.replaceAll('-', '');
  if (!/^[0-9a-f]{12}8[0-9a-f]{19}$/i.test(hex)) return -1n;
  const epoch = BigInt(`0x${hex.slice(13, 16)}`);
  const offset = (BigInt(`0x${hex.slice(16)}`) >> 6n) & 0xffff_ffff_ffffn;
  return (epoch << 48n) | offset;
}

/** The newest `count` of entries by id, oldest first: by time (as far as the id tells it, in ms), then by arrival. */
export function newestOf(entries: ReadonlyMap<string, string>, count: number): [id: string, entry: string][] {
  const byAge = [...entries].toSorted(([a], [b]) => {
    const timeOrder = a.slice(0, 13).localeCompare(b.slice(0, 13));
    if (timeOrder !== 0) return timeOrder;
    return arrivalOf(a) < arrivalOf(b) ? -1 : 1;
  });
  return byAge.slice(Math.max(0, byAge.length - count));
}
