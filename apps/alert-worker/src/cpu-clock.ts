/** Milliseconds that this thread has worked; neither waiting nor the other threads are in it. */
export function readCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
