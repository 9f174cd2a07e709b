import { mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * Keeps a message as a file that only its owner reads. It is whole whenever it is there, also after a power loss, and
 * the same name again replaces it.
 *
 * @throws {Error} of the file system.
 */
export async function writeOutboxFile(directory: string, name: string, message: Buffer): Promise<string> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, name);
  const temporary = join(directory, `.${name}.${process.pid}.tmp`);
  try {
    await syncAfter(temporary, 'w', async (file) => file.writeFile(message));
    await rename(temporary, path);
    await syncAfter(directory, 'r', async () => {});
    return path;
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

type FileHandle = Awaited<ReturnType<typeof open>>;

async function syncAfter(
  path: string,
  flags: 'w' | 'r',
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  await using file = await open(path, flags, 0o600);
  await write(file);
  await file.sync();
}
