/* JSON schemas in words. */

/** The fields of what a schema describes, for each of its alternatives: [{ name, fields: [[name, required, schema]] }]. */
export function fieldsOf(schema, described) {
  const options = schema.oneOf ?? schema.anyOf ?? [schema];
  return options.flatMap((one) => {
    const name = typeOf(one);
    const whole = followed(one.type === "array" ? one.items : one, described);
    if (!whole.properties) return [];
    const required = new Set(whole.required ?? []);
    return [{ name, fields: Object.entries(whole.properties).map(([field, part]) => [field, required.has(field), part]) }];
  });
}

/** "text", "number from 0 to 1", "list of Slate", "A or B". */
export function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return [...new Set(options.map(typeOf))].join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return schema.prefixItems ? `[${schema.prefixItems.map(typeOf).join(", ")}]` : `list of ${typeOf(schema.items ?? {})}`;
  return `${WORDS[schema.type] ?? schema.type ?? "anything"}${range(schema)}`;
}

const WORDS = { string: "text", integer: "whole number", boolean: "true or false", object: "object", null: "null" };

function range({ minimum, maximum }) {
  const shown = (bound) => bound !== undefined && Math.abs(bound) < 1e12;
  if (shown(minimum) && shown(maximum)) return ` from ${minimum} to ${maximum}`;
  return shown(minimum) ? ` from ${minimum}` : "";
}

function followed(schema, described) {
  return schema?.$ref ? described.components.schemas[schema.$ref.split("/").at(-1)] : (schema ?? {});
}
