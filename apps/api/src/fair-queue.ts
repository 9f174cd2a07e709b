/**
 * A queue that serves its owners in turn: each has one item taken before any has its next, in the order they came.
 * An owner's own items keep their order. Whoever pushes bounds it.
 */
export class FairQueue<Item> {
  /** In the order of their turns; an owner without items is not in it. */
  readonly #owners = new Map<string, Item[]>();

  get isEmpty(): boolean {
    return this.#owners.size === 0;
  }

  push(owner: string, item: Item): void {
    const items = this.#owners.get(owner);
    if (items === undefined) this.#owners.set(owner, [item]);
    else items.push(item);
  }

  /** The item whose turn it is; it stays. */
  peek(): Item | undefined {
    for (const [, items] of this.#owners) return items[0];
    return undefined;
  }

  /** Takes the item whose turn it is; its owner goes to the end. */
  shift(): Item | undefined {
    for (const [owner, items] of this.#owners) {
      const item = items.shift();
      this.#owners.delete(owner);
      if (items.length > 0) this.#owners.set(owner, items);
      return item;
    }
    return undefined;
  }
}
