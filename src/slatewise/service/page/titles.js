/* Titles with the year apart, which is set in a lighter hand; the service has put articles in front already. */

const YEAR = /^(.*\S)\s*\((\d{4})\)$/su;

/** Split "The Godfather (1972)" into { name: "The Godfather", year: "1972" }; other titles stay as they are. */
export function nameAndYear(title) {
  const [, name, year] = YEAR.exec(title) ?? [null, title, null];
  return { name, year };
}
