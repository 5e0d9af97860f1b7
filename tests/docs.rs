//! Snippets of the documentation compile in the program of a user: they name the facade, and the README lists each crate that they
//! use. Each program with a `main` is run as a doc test. What pages promise has tests. The page of the conformance tests lists
//! existing ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const STANDARD: [&str; 6] = ["alloc", "core", "crate", "self", "std", "super"];
const PRIMITIVES: [&str; 8] = ["char", "f64", "i32", "i64", "str", "u32", "u64", "usize"];

/// The crates that the facade re-exports.
const INNER: [&str; 3] = ["scoop-core", "scoop-embedded", "scoop-runtime"];

#[test]
fn crates_of_snippets_are_listed_in_the_readme_or_on_their_page() {
    let in_readme = listed(&read("README.md"));
    assert!(in_readme.contains("scoop"), "{in_readme:?}");
    for page in pages() {
        let text = read(&page);
        let in_page = listed(&text);
        for snippet in blocks(&text, "rust") {
            let named = crates(&snippet);
            let unlisted: Vec<_> =
                named.iter().filter(|name| !in_readme.contains(*name) && !in_page.contains(*name)).collect();
            assert!(
                unlisted.is_empty(),
                "{page}: its own `[dependencies]`, and those of the README, lack {unlisted:?} for\n{snippet}"
            );
        }
    }
}

/// What keeps a doc test from running, or from having to succeed.
const NOT_RUN: [&str; 4] = ["compile_fail", "ignore", "no_run", "should_panic"];

/// A program of a page that goes on until a signal ends it. `service.rs` runs it as a process.
const SERVICE: &str = "examples/service/src/main.rs";

/// The page with the first program of a newcomer.
const FIRST: &str = "docs/sagas.md";

#[test]
fn program_with_a_main_is_run() {
    let service = read(SERVICE);
    for page in pages() {
        let text = read(&page);
        assert!(page != FIRST || blocks(&text, "rust").iter().any(|block| block.contains("fn main(")));
        for flag in NOT_RUN {
            let unrun = blocks_marked(&text, |language| language.split(',').any(|it| it == flag));
            let unrun =
                unrun.iter().find(|block| block.contains("fn main(") && !service.ends_with(&***block));
            assert_eq!(unrun, None, "{page}: a reader pastes and runs this, `{flag}` does not");
        }
    }
}

#[test]
fn examples_of_the_inner_crates_import_the_facade() {
    for file in INNER.iter().flat_map(|folder| sources(&root().join(folder).join("src"))) {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let documentation: Vec<_> = text.lines().filter_map(documentation).collect();
        for example in blocks(&documentation.join("\n"), "") {
            for line in example.lines().filter(|line| !line.starts_with("# ")) {
                let inner = INNER.iter().any(|it| line.contains(&format!("{}::", it.replace('-', "_"))));
                assert!(!inner, "{name}: a reader has no such crate: {line}");
            }
        }
    }
}

#[test]
fn published_crate_says_what_a_registry_shows() {
    let folders = fs::read_dir(root()).unwrap().map(|folder| folder.unwrap().path());
    let manifests = folders.map(|folder| folder.join("Cargo.toml")).filter(|path| path.exists());
    let manifests: Vec<_> = manifests.chain([root().join("Cargo.toml")]).collect();
    assert!(manifests.len() > 8, "{manifests:?}");
    for manifest in manifests {
        let text = fs::read_to_string(&manifest).unwrap();
        let package: Vec<_> = text.lines().skip_while(|line| *line != "[package]").collect();
        if package.contains(&"publish = false") || manifest.starts_with(root().join("template")) {
            continue;
        }
        for key in
            ["categories", "description", "documentation", "keywords", "license", "readme", "rust-version"]
        {
            let is_said = package.iter().any(|line| line.starts_with(key));
            assert!(is_said, "{} has no {key}", manifest.display());
        }
    }
}

#[test]
fn versions_of_the_readme_are_those_of_the_code() {
    let (manifest, migrate) = (read("Cargo.toml"), read("scoop-runtime/src/store/postgres/migrate.rs"));
    let after =
        |text: &str, before: &str| text.split_once(before).map(|(_, rest)| rest.chars().take(4).collect());
    let versions: [Option<String>; 3] = [
        after(&manifest, "\nversion = \""),
        after(&manifest, "\nrust-version = \""),
        after(&migrate, "SERVER_VERSION_MIN: i32 = ").map(|version: String| version[..2].to_owned()),
    ];
    let [own, rust, server] = versions.map(|version| version.expect("a version"));
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    let line = format!("Version {}, not released yet · Rust {rust} · PostgreSQL {server} · ", &own[..3]);
    assert!(read("README.md").contains(&line), "{line}");
}

/// Tables of promises, and those of the page that says which tests show them.
const PROMISES: [[(&str, &str); 2]; 2] = [
    [
        ("docs/faq.md", "## When something is wrong"),
        ("docs/development/testing.md", "## Tests of the table of failures"),
    ],
    [
        ("docs/delivery.md", "## A message and its handlers"),
        ("docs/development/testing.md", "## Tests of the table of deliveries"),
    ],
];

#[test]
fn rows_of_promises_have_tests() {
    let rows = |(page, section)| table(&read(page), section);
    for [promises, tests_of_promises] in PROMISES {
        let promised: Vec<_> = rows(promises).into_iter().map(|(row, _)| row).collect();
        let (tested, tests): (Vec<_>, Vec<_>) = rows(tests_of_promises).into_iter().unzip();
        assert!(!promised.is_empty() && promised == tested, "{promised:#?}\nwith tests: {tested:#?}");
        for (row, named) in promised.iter().zip(tests) {
            check_tests(row, &named);
        }
    }
}

#[test]
fn demands_of_other_systems_have_tests() {
    let demands = table(&read("docs/development/testing.md"), "## Tests of the demands of other systems");
    assert!(!demands.is_empty());
    for (demand, tests) in demands {
        check_tests(&demand, &tests);
    }
}

/// The page of the conformance tests.
const CONFORMANCE: &str = "docs/reference/conformance.md";

#[test]
fn deviations_from_the_reference_implementation_have_tests() {
    let deviations = table(&read(CONFORMANCE), "## Deviations");
    assert!(!deviations.is_empty());
    for (number, rest) in deviations {
        let (_, tests) = rest.rsplit_once(" | ").unwrap_or_else(|| panic!("{number}: no column of tests"));
        check_tests(&number, tests);
    }
}

#[test]
fn conformance_tests_are_listed_with_their_scenarios() {
    let listed: BTreeSet<_> = table(&read(CONFORMANCE), "## Scenarios")
        .into_iter()
        .map(|(ids, rest)| {
            let file = rest.split('`').nth(1).unwrap_or_else(|| panic!("{ids}: no file"));
            (file.to_owned(), scenario(&ids.to_lowercase().replace('-', "_")))
        })
        .collect();
    let tested: BTreeSet<_> = sources(&root().join("tests/it/conformance"))
        .into_iter()
        .flat_map(|file| {
            let name = file.strip_prefix(root()).unwrap().display().to_string();
            let text = fs::read_to_string(&file).unwrap();
            tests_of_scenarios(&text).into_iter().map(move |test| (name.clone(), test))
        })
        .collect();
    let differing: Vec<_> = listed.symmetric_difference(&tested).collect();
    assert!(!listed.is_empty() && differing.is_empty(), "listed or tested, but not both: {differing:#?}");
}

/// The first id of the scenarios that a test is named after, such as `rb_02`.
fn scenario(name: &str) -> String {
    name.chars().take(5).collect()
}

/// The first scenario of each test in the text. A test that is named after no scenario is left out.
fn tests_of_scenarios(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.trim().trim_start_matches("async ").strip_prefix("fn "));
    let named = |name: &&str| {
        let id: Vec<_> = name.chars().take(6).collect();
        matches!(id[..], [a, b, '_', c, d, '_']
            if [a, b].iter().all(char::is_ascii_lowercase) && [c, d].iter().all(char::is_ascii_digit))
    };
    names.filter(named).map(scenario).collect()
}

/// A test with a `main` of its own, which checks a list of promises: each is a function.
const KILL_TEST: &str = "tests/kill/";

fn has_function(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.trim().starts_with(&format!("fn {name}(")))
}

/// Fails if one of these tests does not exist, or if there is none. A file stands before its tests.
fn check_tests(row: &str, named: &str) {
    let (mut file, mut count) = (None, 0);
    for name in named.split('`').skip(1).step_by(2) {
        if name.ends_with(".rs") {
            file = Some((name, read(name)));
        } else {
            let (file, text) = file.as_ref().unwrap_or_else(|| panic!("{row}: {name} is in no file"));
            let tests =
                if file.starts_with(KILL_TEST) { has_function(text, name) } else { has_test(text, name) };
            assert!(tests, "{row}: {file} has no test {name}");
            count += 1;
        }
    }
    assert!(count > 0, "{row}: no test");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// The README, the guide and the reference.
fn pages() -> Vec<String> {
    let files = ["docs", "docs/reference"].into_iter().flat_map(|folder| {
        let files = fs::read_dir(root().join(folder)).unwrap();
        files.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap()))
    });
    std::iter::once("README.md".to_owned()).chain(files.filter(|page| page.ends_with(".md"))).collect()
}

/// The rows of the only table of a section, each with its first cell apart. Those of the heading are left out.
fn table(page: &str, section: &str) -> Vec<(String, String)> {
    let (_, text) =
        page.split_once(&format!("\n{section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap_or_default();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    rows.skip(2).map(|(first, rest)| (first.to_owned(), rest.to_owned())).collect()
}

/// Whether the file has a function of this name with an attribute of tests directly above.
fn has_test(text: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.windows(2).any(|pair| {
        let is_test = pair[0] == "#[test]" || pair[0].starts_with("#[tokio::test");
        is_test && pair[1].trim_start_matches("async ").starts_with(&function)
    })
}

/// All files of Rust below the folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "rs"));
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// The text of a line of documentation.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// The fenced blocks whose language begins so.
fn blocks(text: &str, language: &str) -> Vec<String> {
    blocks_marked(text, |found| found.starts_with(language))
}

fn blocks_marked(text: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut blocks, mut open) = (vec![], None);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take().flatten()),
            (Some(found), None) => open = Some(is_wanted(found).then(String::new)),
            (None, Some(Some(block))) => *block += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    blocks
}

/// The crates of the `[dependencies]` that a page shows.
fn listed(page: &str) -> BTreeSet<String> {
    let toml = blocks(page, "toml").into_iter().filter(|block| block.starts_with("[dependencies]"));
    let name = |line: &str| Some(line.split_once('=')?.0.trim().replace('-', "_"));
    toml.flat_map(|block| block.lines().filter_map(name).collect::<Vec<_>>()).collect()
}

/// The crates that a snippet names: the words before `::`, unless the snippet imports or defines
/// them, and the crate of the derives of serde.
fn crates(snippet: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut crates = BTreeSet::new();
    for (end, _) in snippet.match_indices("::") {
        let start = snippet[..end].rfind(|c| !is_word(c)).map_or(0, |before| before + 1);
        let (before, name) = (&snippet[..start], &snippet[start..end]);
        let is_first = !before.ends_with("::") && name.starts_with(|c: char| c.is_lowercase());
        let is_known = STANDARD.contains(&name) || PRIMITIVES.contains(&name);
        let is_module = snippet.contains(&format!("mod {name} {{"));
        if is_first && !is_known && !is_module && !imports(snippet, name) && !before.ends_with('.') {
            crates.insert(name.to_owned());
        }
    }
    if snippet.contains("Serialize") {
        crates.insert("serde".to_owned());
    }
    crates
}

/// Whether the snippet brings the name into scope from another crate.
fn imports(snippet: &str, name: &str) -> bool {
    let uses = snippet.lines().filter(|line| line.trim_start().trim_start_matches("# ").starts_with("use "));
    let ends = [format!("::{name};"), format!("{{{name},"), format!(" {name},"), format!(" {name}}}")];
    uses.into_iter().any(|line| ends.iter().any(|end| line.contains(end)))
}
