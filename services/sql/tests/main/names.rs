//! Tests of names: every keyword of the parser can be the name of a column, in backticks if necessary.

use tideline_sql::parse;
use tideline_sql::statement::quoted;

/// Returns true if the parser accepts `written` at every position of the grammar where a name is allowed.
fn is_name(written: &str) -> bool {
    [
        format!("SELECT {written}, {written} AS a FROM t WHERE {written} = 1 AND NOT {written} IN (1) ORDER BY {written} DESC LIMIT 1"),
        format!("SELECT a FROM t WHERE {written} BETWEEN 1 AND 2 OR {written} IS NULL OR 1 < {written} OR {written} LIKE 'a%'"),
        format!("SELECT a FROM {written} WHERE ({written}) ORDER BY b, {written}"),
        format!("CREATE TABLE {written} (b BIGINT, {written} BIGINT, PRIMARY KEY (hash_prefix({written}, 2) AS h, {written} DESC))"),
        format!("UPSERT INTO {written} ({written}) VALUES (1)"),
        format!("UPDATE {written} SET {written} = {written} + 1, b = 1 WHERE {written} = 2"),
        format!("DELETE FROM {written} WHERE a = 1 AND {written} > 1"),
        format!("ALTER TABLE {written} ADD {written} JSON, DROP {written}"),
        format!("DESCRIBE {written}"),
    ]
    .iter()
    .all(|text| parse(text, &[]).is_ok())
}

#[test]
fn every_keyword_is_a_name_as_it_is_quoted() {
    let keywords = sqlparser::keywords::ALL_KEYWORDS;
    let wrong: Vec<&str> = keywords
        .iter()
        .copied()
        .filter(|keyword| quoted(keyword) == *keyword && !is_name(keyword))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let wrong: Vec<&&str> = keywords
        .iter()
        .filter(|keyword| !is_name(&format!("`{keyword}`")))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
