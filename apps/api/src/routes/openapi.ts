import { z } from 'zod';
import { renderOpenApi } from '../openapi.ts';
import { declareRoute } from '../route.ts';
import type { RouteDeclaration } from '../route.ts';

/** The description of all routes, this one included; rendered on the first request. */
export function openApiRoutes(listAll: () => readonly RouteDeclaration[]): RouteDeclaration[] {
  let rendered: string | undefined;
  return [
    declareRoute({
      method: 'GET',
      path: '/openapi.json',
      access: { kind: 'public' },
      summary: 'This description, OpenAPI 3.1',
      answers: { 200: { description: 'An OpenAPI document', schema: z.record(z.string(), z.unknown()) } },
      handle: () => ({ status: 200, text: (rendered ??= renderOpenApi(listAll())) }),
    }),
  ];
}
