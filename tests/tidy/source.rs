//! Reads source files, without comments and tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of Rust without its tests.
pub(crate) struct File {
    /// From the root of the repository.
    pub(crate) path: String,
    /// How many lines have code.
    pub(crate) lines: usize,
    pub(crate) tokens: Vec<String>,
}

struct Token {
    text: String,
    line: usize,
}

/// The files of Rust below `folder/src`, but for those of modules that only tests have.
pub(crate) fn files(root: &Path, folder: &str) -> Vec<File> {
    let mut files = Vec::new();
    let mut of_tests = BTreeSet::new();
    for path in paths(&root.join(folder).join("src"), "rs") {
        let (tokens, test_modules) = without_tests(lex(&fs::read_to_string(&path).expect("it is readable")));
        let submodules = match path.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs" | "main.rs" | "mod.rs") => path.with_file_name(""),
            _ => path.with_extension(""),
        };
        of_tests.extend(test_modules.iter().map(|name| submodules.join(name)));
        files.push((path, tokens));
    }
    files.retain(|(path, _)| !path.ancestors().any(|it| of_tests.contains(&it.with_extension(""))));
    let file = |(path, tokens): (PathBuf, Vec<Token>)| File {
        path: path.strip_prefix(root).expect("it is below the root").display().to_string(),
        lines: lines(&tokens),
        tokens: tokens.into_iter().map(|token| token.text).collect(),
    };
    files.into_iter().map(file).collect()
}

/// The files below a folder with this extension, sorted. There are none if there is no folder.
pub(crate) fn paths(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("the folder is readable").path();
        if path.is_dir() {
            found.extend(paths(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Names, numbers, literals, `::`, and each other character alone.
pub(crate) fn tokens(code: &str) -> Vec<String> {
    lex(code).into_iter().map(|token| token.text).collect()
}

fn lex(code: &str) -> Vec<Token> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), code, 1);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let length = token_length(rest, first);
            tokens.push(Token { text: rest[..length].into(), line });
            length
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

fn token_length(code: &str, first: char) -> usize {
    let name = code.find(|letter| !is_in_name(letter)).unwrap_or(code.len());
    let hashes = code[name..].chars().take_while(|letter| *letter == '#').count();
    let is_raw = ["r", "br"].contains(&&code[..name]) && code[name + hashes..].starts_with('"');
    match first {
        _ if is_raw => {
            let (start, quote) = (name + hashes + 1, format!("\"{}", "#".repeat(hashes)));
            code[start..].find(&quote).map_or(code.len(), |at| start + at + quote.len())
        }
        _ if name > 0 => name,
        // Other quotes begin lifetimes.
        '\'' if !code.starts_with("'\\") && code.chars().nth(2) != Some('\'') => 1,
        '"' | '\'' => {
            let mut is_escaped = false;
            let is_end = |(_, letter): &(usize, char)| {
                let is_end = *letter == first && !is_escaped;
                is_escaped = *letter == '\\' && !is_escaped;
                is_end
            };
            code.char_indices().skip(1).find(is_end).map_or(code.len(), |(at, _)| at + 1)
        }
        _ if code.starts_with("::") => 2,
        _ => first.len_utf8(),
    }
}

fn is_in_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

pub(crate) fn is_name(token: &str) -> bool {
    token.chars().all(is_in_name) && !token.starts_with(|first: char| first.is_numeric())
}

/// How many lines these tokens are on.
fn lines(tokens: &[Token]) -> usize {
    let mut lines = BTreeSet::new();
    for token in tokens {
        let parts = token.text.lines().zip(token.line..).filter(|(part, _)| !part.trim().is_empty());
        lines.extend(parts.map(|(_, line)| line));
    }
    lines.len()
}

/// Cuts items under `#[cfg(test)]`. Returns the names of those that are modules in files of their own.
fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut modules, mut rest) = (Vec::new(), Vec::new(), tokens.into_iter());
    while let Some(token) = rest.next() {
        let next = |count| rest.as_slice().iter().take(count).map(|it| &*it.text).collect::<String>();
        if token.text != "#" || (next(4) != "[cfg(test" && next(6) != "[cfg(all(test") {
            kept.push(token);
            continue;
        }
        let end = item_end(rest.as_slice());
        let item: Vec<_> = rest.by_ref().take(end).map(|it| it.text).collect();
        if let [.., keyword, name, last] = &*item
            && (keyword == "mod" && last == ";")
        {
            modules.push(name.clone());
        }
    }
    (kept, modules)
}

/// How many tokens an item has: up to its semicolon or last brace.
fn item_end(tokens: &[Token]) -> usize {
    let (mut depth, mut is_use) = (0, false);
    let is_end = |token: &Token| {
        depth += level(&token.text);
        is_use |= depth == 0 && token.text == "use";
        depth == 0 && (token.text == ";" || (token.text == "}" && !is_use))
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |at| at + 1)
}

/// How much deeper in brackets the code is after a token.
pub(crate) fn level(token: &str) -> isize {
    match token {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// The words of a name in `snake_case` or `CamelCase`, in lower case.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words = String::new();
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_small {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
        after_small = letter.is_lowercase() || letter.is_numeric();
    }
    words.split('_').filter(|word| !word.is_empty()).map(String::from).collect()
}

/// Whether a token is a string with a statement of SQL, or a part of one.
pub(crate) fn is_sql(token: &str) -> bool {
    let has = |word: &str| token.split(|letter| !is_in_name(letter)).any(|it| it == word);
    let is_statement = has("SELECT") || (has("INSERT") && has("INTO")) || (has("DELETE") && has("FROM"));
    token.contains('"') && (is_statement || (has("UPDATE") && has("SET")))
}

#[test]
fn comments_blank_lines_and_tests_are_no_code() {
    let text = r##"
/* a
comment */
fn first<'a>(it: &'a str) -> char { '"' } // "not a text"
const QUERY: &str = "SELECT {

    1 // \" }";
#[cfg(test)]
mod elsewhere;
const RAW: &str = r#"a "quoted" text"#;
#[cfg(test)]
use {a, b};
#[cfg(all(test, feature = "x"))]
mod tests { use super::*; fn never() { '}'; '\''; } }
fn last() {}
"##;
    let (product, modules) = without_tests(lex(text));
    let texts: Vec<_> = product.iter().filter(|it| it.text.contains('"')).map(|it| &*it.text).collect();
    assert_eq!(lines(&product), 5);
    assert_eq!(texts, ["'\"'", "\"SELECT {\n\n    1 // \\\" }\"", "r#\"a \"quoted\" text\"#"]);
    assert_eq!(modules, ["elsewhere"]);
    assert!(is_sql(texts[1]) && !is_sql(texts[2]) && !is_sql("SELECT") && !is_sql("\"an UPDATED SET\""));
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("RunPlace2Of_SEATS"), ["run", "place2", "of", "seats"]);
    assert_eq!(words("__is_alone"), ["is", "alone"]);
}
