/** Lets one piece of work run at a time, in the order of asking. At most a handful of askers: nothing bounds the line. */
export class Turn {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `work` when everything asked for before has ended, however it ended. */
  async hold<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#last.then(work);
    this.#last = mine.catch(() => undefined);
    return mine;
  }
}
