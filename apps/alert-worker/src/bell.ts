/** Wakes one sleeper early. A ring that nobody waits for is kept, once. */
export class Bell {
  #isRung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#isRung = true;
    this.#wake?.();
  }

  /** Waits for the next ring, at most `timeoutMs`, and no longer than until the signal is aborted. */
  async wait(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (!this.#isRung && !signal.aborted) {
      const woken = Promise.withResolvers<void>();
      this.#wake = woken.resolve;
      const timer = setTimeout(woken.resolve, timeoutMs);
      signal.addEventListener('abort', this.#wake, { once: true });
      await woken.promise;
      clearTimeout(timer);
      signal.removeEventListener('abort', this.#wake);
      this.#wake = undefined;
    }
    this.#isRung = false;
  }
}
