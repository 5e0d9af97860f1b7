//! Snippets of the documentation compile in the program of a user: they name the facade, and the
//! README lists each crate that they use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const STANDARD: [&str; 6] = ["alloc", "core", "crate", "self", "std", "super"];
const PRIMITIVES: [&str; 8] = ["char", "f64", "i32", "i64", "str", "u32", "u64", "usize"];

/// Folders of the engine and the core that the facade does not re-export.
const INTERNAL: [&str; 2] = ["scoop-core/src/audit", "scoop-core/src/store"];

#[test]
fn crates_of_snippets_are_listed_in_the_readme() {
    let listed = listed(&read("README.md"));
    assert!(listed.contains("scoop"), "{listed:?}");
    for page in pages() {
        for snippet in blocks(&read(&page), "rust") {
            let unlisted: Vec<_> = crates(&snippet).difference(&listed).cloned().collect();
            assert!(
                unlisted.is_empty(),
                "{page}: the README's `[dependencies]` lack {unlisted:?} for\n{snippet}"
            );
        }
    }
}

#[test]
fn examples_of_the_inner_crates_import_the_facade() {
    for file in
        ["scoop-core/src", "scoop-runtime/src"].into_iter().flat_map(|folder| sources(&root().join(folder)))
    {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        if INTERNAL.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let documentation: Vec<_> = text.lines().filter_map(documentation).collect();
        for example in blocks(&documentation.join("\n"), "") {
            for line in example.lines().filter(|line| !line.starts_with("# ")) {
                let inner = line.contains("scoop_core::") || line.contains("scoop_runtime::");
                assert!(!inner, "{name}: a reader has no such crate: {line}");
            }
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// The README and the guide.
fn pages() -> Vec<String> {
    let guide = fs::read_dir(root().join("docs")).unwrap();
    let guide = guide.map(|entry| format!("docs/{}", entry.unwrap().file_name().into_string().unwrap()));
    std::iter::once("README.md".to_owned()).chain(guide.filter(|page| page.ends_with(".md"))).collect()
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
    let (mut blocks, mut open) = (vec![], None);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take().flatten()),
            (Some(found), None) => open = Some(found.starts_with(language).then(String::new)),
            (None, Some(Some(block))) => *block += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    blocks
}

/// The crates of the `[dependencies]` that the README shows.
fn listed(readme: &str) -> BTreeSet<String> {
    let toml = blocks(readme, "toml").into_iter().find(|block| block.starts_with("[dependencies]"));
    let toml = toml.expect("the README shows `[dependencies]`");
    toml.lines().filter_map(|line| Some(line.split_once('=')?.0.trim().replace('-', "_"))).collect()
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
