import { ApiError } from '@logpond/schema/api-error';
import type { z } from 'zod';
import { parseBySchema } from './request-body.ts';
import type { QuerySpec } from './route.ts';

/** Query parameters that may each come once; unknown ones and empty values are ignored. */
export function plainQuery<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
): QuerySpec<z.output<z.ZodObject<Shape>>> {
  const names = Object.keys(schema.shape);
  return {
    schema,
    parse: (params) => {
      const given: Record<string, string> = {};
      for (const name of names) {
        const values = params.getAll(name);
        if (values.length > 1) {
          const message = `expected the parameter once, got it ${values.length} times`;
          throw new ApiError('VALIDATION_ERROR', {
            public: `${name}: ${message}`,
            details: [{ path: name, message }],
          });
        }
        if (values[0]) given[name] = values[0];
      }
      return parseBySchema(schema, given);
    },
  };
}
