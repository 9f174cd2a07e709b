import { ApiError } from '@logpond/schema/api-error';
import {
  loginRequestSchema,
  registerRequestSchema,
  sessionAnswerSchema,
  userSchema,
} from '@logpond/schema/account';
import type { SessionGrant } from '@logpond/db/accounts';
import { z } from 'zod';
import { actorOf } from '../actor.ts';
import type { ApiDeps } from '../api-deps.ts';
import { canUseSecureCookie, renderClearedCookies, renderSessionCookie } from '../credentials.ts';
import { jsonBody } from '../request-body.ts';
import { declareRoute } from '../route.ts';
import type { Answer, RouteDeclaration } from '../route.ts';

type AuthDeps = Pick<ApiDeps, 'accounts' | 'setup' | 'config' | 'log'>;

/** Accounts and sessions. */
export function authRoutes(deps: AuthDeps): RouteDeclaration[] {
  const { accounts, setup, config } = deps;
  const grant = makeGranter(deps);
  return [
    declareRoute({
      method: 'POST',
      path: '/auth/login',
      access: { kind: 'public' },
      summary: 'Log in with e-mail and password',
      body: jsonBody(loginRequestSchema),
      answers: { 200: { description: 'A session of 30 days', schema: sessionAnswerSchema } },
      handle: async ({ body, ip, host }) => {
        const session = await accounts.login(body.email, body.password, ip);
        if (session === undefined) throw new ApiError('INVALID_CREDENTIALS');
        return grant(200, session, host);
      },
    }),
    declareRoute({
      method: 'POST',
      path: '/auth/register',
      worksBeforeSetup: true,
      access: { kind: 'public' },
      summary: 'Create an account; the first one needs the setup token',
      body: jsonBody(registerRequestSchema),
      answers: { 201: { description: 'The account exists and is logged in', schema: sessionAnswerSchema } },
      handle: async (request) => {
        const session = await accounts.register(actorOf(request), request.body, { signup: config.SIGNUP });
        await setup.open();
        return grant(201, session, request.host);
      },
    }),
    ...ownSessionRoutes(deps),
  ];
}

function ownSessionRoutes({ accounts }: AuthDeps): RouteDeclaration[] {
  return [
    declareRoute({
      method: 'POST',
      path: '/auth/logout',
      access: { kind: 'session' },
      summary: 'End this session',
      answers: { 204: { description: 'The session is over' } },
      handle: async ({ caller }) => {
        await accounts.logout(caller.token);
        return { status: 204, cookies: renderClearedCookies() };
      },
    }),
    declareRoute({
      method: 'GET',
      path: '/auth/me',
      access: { kind: 'session' },
      summary: 'The user of this session',
      answers: { 200: { description: 'The user', schema: z.object({ user: userSchema }) } },
      handle: ({ caller }) => ({ status: 200, value: { user: caller.user } }),
    }),
  ];
}

type Granter = (status: number, session: SessionGrant, host: string | undefined) => Answer;

function makeGranter({ config, log }: AuthDeps): Granter {
  let hasWarned = false;
  return (status, session, host) => {
    const isSecure = canUseSecureCookie(host, config.PUBLIC_URL);
    if (!isSecure && !hasWarned) {
      hasWarned = true;
      log.warn(
        'sessions are handed out over plain HTTP: their cookie cannot be marked Secure; put TLS in front and set PUBLIC_URL',
      );
    }
    const { token, expiresAt } = session;
    return {
      status,
      // Existing dashboards read the token in `session`.
      value: { ...session, session: { token, expiresAt } },
      cookies: [renderSessionCookie(token, expiresAt, isSecure)],
    };
  };
}
