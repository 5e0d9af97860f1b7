//! The measures of size that have budgets.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::ROOT;
use crate::source::{self, File, level, tokens};

/// All measures, by the names that `BUDGETS` has.
pub(crate) fn all(files: &[File]) -> BTreeMap<String, usize> {
    let mut measures = BTreeMap::new();
    for file in files {
        let part = file.path.split('/').next().unwrap_or_default();
        let package = if part == "src" { "scoop-saga" } else { part };
        *measures.entry(format!("Rust lines of {package}")).or_default() += file.lines;
    }
    let file = |path: &str| files.iter().find(|file| file.path == path).expect("the file exists");
    let of_runtime = files.iter().filter(|file| file.path.starts_with("scoop-runtime/"));
    let architecture = fs::metadata(Path::new(ROOT).join("ARCHITECTURE.md")).expect("the page exists").len();
    let migrations = sql("scoop-runtime/migrations").join("\n");
    let sql_folders = ["scoop-runtime/migrations", "scoop-runtime/sql", "scoop-cli/sql", "scoop-operate/sql"];
    let (columns, indexes) = table(&migrations, "run");
    for (what, measured) in [
        ("SQL lines", sql_folders.map(sql).iter().flatten().map(|text| text.lines().count()).sum()),
        ("columns of run", columns),
        ("indexes of run", indexes),
        ("storage operations", operations(&file("scoop-runtime/src/store/mod.rs").tokens)),
        ("names at the root of the facade", exports(&file("src/lib.rs").tokens)),
        ("public methods of Scoop", of_runtime.map(|file| methods(&file.tokens, "Scoop")).sum()),
        ("bytes of ARCHITECTURE.md", usize::try_from(architecture).expect("a page is small")),
    ] {
        measures.insert(what.into(), measured);
    }
    measures
}

/// The texts of a folder's files of SQL, without comments.
fn sql(folder: &str) -> Vec<String> {
    let text = |path| fs::read_to_string(path).expect("the file is readable");
    let code = |text: String| {
        let lines = text.lines().map(|line| line.split("--").next().unwrap_or(line).trim_end());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    source::paths(&Path::new(ROOT).join(folder), "sql").into_iter().map(text).map(code).collect()
}

/// What stands between the brackets that begin after these tokens, each time.
fn blocks<'a>(tokens: &'a [String], start: &[&str]) -> Vec<&'a [String]> {
    let mut blocks = Vec::new();
    for at in 0..tokens.len().saturating_sub(start.len()) {
        if tokens[at..].iter().zip(start).all(|(token, expected)| token == expected) {
            let body = &tokens[at + start.len()..];
            let mut depth = 1;
            let end = body.iter().position(|token| {
                depth += level(token);
                depth == 0
            });
            blocks.push(&body[..end.unwrap_or(body.len())]);
        }
    }
    blocks
}

/// The numbers of columns and indexes of a table, with those of its keys.
fn table(migrations: &str, table: &str) -> (usize, usize) {
    let tokens = tokens(migrations);
    let (mut columns, mut indexes) = (0, 0);
    for body in blocks(&tokens, &["CREATE", "TABLE", "scoop", ".", table, "("]) {
        let mut depth = 0;
        let mut begins = true;
        for token in body {
            columns += usize::from(begins && token.starts_with(char::is_lowercase));
            indexes += usize::from(["PRIMARY", "UNIQUE"].contains(&&**token));
            depth += level(token);
            begins = depth == 0 && token == ",";
        }
    }
    for statement in tokens.split(|token| token == ";") {
        let is = |start: &[&str]| statement.windows(start.len()).any(|window| window == start);
        let changes =
            |verb: &str| statement.windows(2).filter(|pair| pair[0] == verb && pair[1] == "COLUMN").count();
        indexes += usize::from(is(&["INDEX"]) && is(&["ON", "scoop", ".", table]) && !is(&["FUNCTION"]));
        if is(&["ALTER", "TABLE", "scoop", ".", table]) {
            columns = columns + changes("ADD") - changes("DROP");
        }
    }
    (columns, indexes)
}

/// The operations that `storage!` declares.
fn operations(tokens: &[String]) -> usize {
    let functions =
        |body: &&[String]| body.windows(2).filter(|pair| pair[0] == "async" && pair[1] == "fn").count();
    blocks(tokens, &["storage", "!", "{"]).iter().map(functions).sum()
}

/// The names that a crate re-exports at its root, but for hidden ones.
fn exports(tokens: &[String]) -> usize {
    let (mut names, mut depth) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        depth += level(token);
        let is_hidden =
            tokens[..at].ends_with(&["#", "[", "doc", "(", "hidden", ")", "]", "pub"].map(String::from));
        if depth == 0 && token == "use" && tokens[at - 1] == "pub" && !is_hidden {
            let end = tokens[at..].iter().position(|token| token == ";").expect("the import ends");
            // A name ends at a comma, a brace or the semicolon.
            let ends = |pair: &&[String]| source::is_name(&pair[0]) && [",", "}", ";"].contains(&&*pair[1]);
            names += tokens[at..=at + end].windows(2).filter(ends).count();
        }
    }
    names
}

/// The public methods in the `impl` blocks of a type.
fn methods(tokens: &[String], of: &str) -> usize {
    let mut methods = 0;
    for body in blocks(tokens, &["impl", of, "{"]) {
        let mut depth = 0;
        for (at, token) in body.iter().enumerate() {
            depth += level(token);
            let mut next =
                body[at + 1..].iter().skip_while(|it| ["async", "const", "unsafe"].contains(&&***it));
            methods += usize::from(depth == 0 && token == "pub" && next.next().is_some_and(|it| it == "fn"));
        }
    }
    methods
}

#[test]
fn columns_and_indexes_of_a_table_are_counted() {
    let migrations = "
        CREATE TABLE scoop.run (
            root uuid NOT NULL, id numeric(3, 2), PRIMARY KEY (root, id), CHECK (f(a, b))
        );
        CREATE TABLE scoop.runs (id uuid PRIMARY KEY);
        CREATE UNIQUE INDEX one ON scoop.run (id);
        CREATE INDEX other ON scoop.runs (id);
        CREATE TRIGGER t ON scoop.run EXECUTE FUNCTION f();
        ALTER TABLE scoop.run ADD COLUMN first int, ADD COLUMN second int, DROP COLUMN id;
    ";
    assert_eq!(table(migrations, "run"), (3, 2));
}

#[test]
fn names_methods_and_operations_are_counted() {
    let code = "
        #[doc(hidden)] pub use a::hidden; #[cfg(x)] pub use a::{B, c::{D, E as F}, };
        pub use g::H; use private::I; pub mod inner { pub use j::K; }
        impl Scoop { pub async fn a() { pub fn inner() {} } pub const fn b() {} pub(crate) fn c() {} }
        impl Scoop { fn d() {} }
        impl Builder { pub fn e() {} }
        macro_rules! storage { () => { async fn f(); } }
        storage! { trait G { async fn h(); async fn i(); } }
    ";
    let tokens = tokens(code);
    assert_eq!((exports(&tokens), methods(&tokens, "Scoop"), operations(&tokens)), (4, 2, 2));
}
