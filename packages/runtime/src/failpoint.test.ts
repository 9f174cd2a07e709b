import { afterEach, describe, expect, it, vi } from 'vitest';
import { armFailpoints, passFailpoint } from './failpoint.ts';

afterEach(() => {
  armFailpoints('');
  vi.restoreAllMocks();
});

describe('a failpoint', () => {
  it('does nothing until it is armed, and then at the hit that was asked for only', () => {
    const kill = vi.spyOn(process, 'kill').mockReturnValue(true);
    passFailpoint('W4.after');
    armFailpoints('W4.after:kill:2, A5.before:stop');
    passFailpoint('W4.after');
    expect(kill).not.toHaveBeenCalled();
    passFailpoint('W4.after');
    passFailpoint('A5.before');
    passFailpoint('W4.after');
    expect(kill.mock.calls).toEqual([
      [process.pid, 'SIGKILL'],
      [process.pid, 'SIGSTOP'],
    ]);
  });

  it('with a detail waits for that detail', () => {
    const kill = vi.spyOn(process, 'kill').mockReturnValue(true);
    armFailpoints('W2.decode@4711:kill');
    passFailpoint('W2.decode', '1');
    expect(kill).not.toHaveBeenCalled();
    passFailpoint('W2.decode', '4711');
    expect(kill).toHaveBeenCalledOnce();
  });

  it('may be armed several times: each item counts its own hits and has its own detail', () => {
    const kill = vi.spyOn(process, 'kill').mockReturnValue(true);
    armFailpoints('W2.decode@7:stop,W2.decode:kill:3,W2.decode@7:stop:2');
    const signals = ['7', '8', '7', '7'].map((detail) => {
      passFailpoint('W2.decode', detail);
      return kill.mock.calls.splice(0).map(([, signal]) => signal);
    });
    expect(signals).toEqual([['SIGSTOP'], [], ['SIGKILL', 'SIGSTOP'], []]);
  });

  it('that is malformed is refused with what was expected', () => {
    expect(() => armFailpoints('W4:explode')).toThrow(/expected items such as W4\.after:kill.*W4:explode/);
  });
});
