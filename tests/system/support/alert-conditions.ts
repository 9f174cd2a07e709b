/** SQL over `logs`, and what it binds. */
export type ConditionSql = { sql: string; params: Record<string, unknown> };

/** What of a rule's condition decides what matches. */
export type Matched = { field: string; operator: string; value?: unknown };

type Scalar = string | number | boolean;

const LEVELS = ['debug', 'info', 'warn', 'error', 'critical'];
const COMPARISONS: Record<string, string> = { gt: '>', gte: '>=', lt: '<', lte: '<=' };

/**
 * What a rule matches, in SQL that shares nothing with the product: for values of plain ASCII, and metadata of one
 * level with numbers and texts, as the tests of alerts send them.
 *
 * @throws {RangeError} for a condition that it does not know.
 */
export function renderCondition(condition: Matched, service?: string | null): ConditionSql {
  const { field } = condition;
  const own = field.startsWith('metadata.') ? renderMetadata(condition) : renderColumn(condition);
  if (service === undefined || service === null) return own;
  return {
    sql: `(${own.sql}) AND service = {ruleService:String}`,
    params: { ...own.params, ruleService: service },
  };
}

function renderColumn({ field, operator, value }: Matched): ConditionSql {
  if (field === 'level' && operator in COMPARISONS) {
    const bound = LEVELS.indexOf(String(value)) + 1;
    return { sql: `toInt8(level) ${COMPARISONS[operator]} {bound:Int8}`, params: { bound } };
  }
  const column = field === 'level' ? 'toString(level)' : field;
  return renderText(column, operator, value);
}

/** An absent field is an empty text here; the tests send no empty ones. */
function renderMetadata({ field, operator, value }: Matched): ConditionSql {
  const key = field.slice('metadata.'.length);
  const number = `JSONExtractFloat(metadata, {key:String})`;
  const isNumber = `JSONType(metadata, {key:String}) IN ('Int64', 'UInt64', 'Double')`;
  if (operator === 'exists') return { sql: 'JSONHas(metadata, {key:String})', params: { key } };
  if (operator in COMPARISONS) {
    const sql = `${isNumber} AND ${number} ${COMPARISONS[operator]} {bound:Float64}`;
    return { sql, params: { key, bound: Number(value) } };
  }
  const text = `if(${isNumber}, JSONExtractRaw(metadata, {key:String}), JSONExtractString(metadata, {key:String}))`;
  const { sql, params } = renderText(text, operator, value);
  return { sql, params: { ...params, key } };
}

function renderText(text: string, operator: string, value: unknown): ConditionSql {
  const values = (Array.isArray(value) ? (value as Scalar[]) : [(value ?? '') as Scalar]).map(String);
  const params = { value: values[0], values };
  switch (operator) {
    case 'equals':
      return { sql: `${text} = {value:String}`, params };
    case 'not_equals':
      return { sql: `${text} != {value:String}`, params };
    case 'in':
      return { sql: `has({values:Array(String)}, ${text})`, params };
    case 'not_in':
      return { sql: `NOT has({values:Array(String)}, ${text})`, params };
    case 'contains':
      return { sql: `positionCaseInsensitiveUTF8(${text}, {value:String}) > 0`, params };
    case 'not_contains':
      return { sql: `positionCaseInsensitiveUTF8(${text}, {value:String}) = 0`, params };
    case 'starts_with':
      return { sql: `startsWith(lower(${text}), lower({value:String}))`, params };
    case 'regex':
      return { sql: `match(${text}, {value:String})`, params };
    default:
      throw new RangeError(`expected an operator that the judge knows, got ${operator}`);
  }
}
