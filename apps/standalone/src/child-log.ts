import { closeSync, copyFileSync, fstatSync, ftruncateSync, openSync, readSync } from 'node:fs';

const BYTES_MAX = 10 * 1024 * 1024;
const TAIL_BYTES = 4096;

/**
 * The file that takes one child's output, 10 MB and one older file of the same size. The child writes to it by
 * itself (append only), so nothing passes through this process and output survives it.
 */
export class ChildLog implements Disposable {
  readonly path: string;
  readonly fd: number;

  constructor(path: string) {
    this.path = path;
    this.fd = openSync(path, 'a+', 0o600);
  }

  /** Bytes in the file, to be given to `readFrom` later. */
  get size(): number {
    return fstatSync(this.fd).size;
  }

  /** Moves the content to `<path>.1` when it is above the bound. Lines written meanwhile may be lost. */
  rotate(): void {
    if (this.size <= BYTES_MAX) return;
    // The children hold this very file, so it is copied and emptied, not renamed.
    copyFileSync(this.path, `${this.path}.1`);
    ftruncateSync(this.fd);
  }

  /** What was written since `position`, at most its last 4 KB. */
  readFrom(position: number): string {
    const { size } = this;
    const start = Math.max(position <= size ? position : 0, size - TAIL_BYTES);
    const buffer = Buffer.alloc(size - start);
    const bytes = readSync(this.fd, buffer, 0, buffer.length, start);
    return buffer.toString('utf8', 0, bytes).trim();
  }

  [Symbol.dispose](): void {
    closeSync(this.fd);
  }
}
