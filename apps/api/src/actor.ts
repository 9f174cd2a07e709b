import type { Actor } from '@logpond/db/control-store';
import type { Access, RouteRequest } from './route.ts';

/** Who did it, for the change log. */
export function actorOf(request: RouteRequest<Access, string, unknown, unknown>): Actor {
  const { caller, ip, requestId } = request;
  const origin = { requestId, ...(ip === undefined ? {} : { ip }) };
  if (caller.kind === 'session') return { kind: 'user', id: caller.user.id, ...origin };
  return { kind: 'system', ...origin };
}
