/* Titles as people write them: the year apart, the article in front. */

const YEAR = /^(.*\S)\s*\((\d{4})\)$/su;
const ARTICLE = /^(.+), (The|A|An|Le|La|Les|L'|Il|Der|Die|Das|El|Los|Las)$/u;

/** Split "Godfather, The (1972)" into { name: "The Godfather", year: "1972" }; other titles stay as they are. */
export function nameAndYear(title) {
  const [, dated, year] = YEAR.exec(title) ?? [null, title, null];
  const [, rest, article] = ARTICLE.exec(dated) ?? [];
  if (article === undefined) return { name: dated, year };
  return { name: article.endsWith("'") ? article + rest : `${article} ${rest}`, year };
}
