//! Writes a listing of the public API, with the names that users write: `scoop-api-listing FOLDER_OF_JSON FOLDER_OF_LISTINGS`.
//!
//! The documentation of the facade does not have the items that it re-exports. So the listing has the items of the crates behind
//! it, renamed, if the facade names them. What the facade does not name keeps the path in its own crate, and so shows itself.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::{env, fs};

use public_api::Builder;
use serde_json::Value;

/// The crates behind the facade, whose listing is that of the facade.
const BEHIND: [&str; 5] = ["scoop_core", "scoop_embedded", "scoop_macros", "scoop_operate", "scoop_runtime"];

/// The format of the JSON that this version of `public-api` reads.
const FORMAT: u64 = 57;

fn main() {
    let mut folders = env::args().skip(1);
    let (json, listings) =
        (folders.next().expect("a folder of JSON"), folders.next().expect("a folder to write to"));
    let json = |name: &str| Path::new(&json).join(format!("{name}.json"));
    let mut names = Names::default();
    // A crate behind the facade may itself re-export items of another one.
    for name in ["scoop"].into_iter().chain(BEHIND) {
        let text = fs::read_to_string(json(name)).expect("the JSON is readable");
        let documented: Value = serde_json::from_str(&text).expect("rustdoc writes JSON");
        let format = documented["format_version"].as_u64();
        assert_eq!(
            format,
            Some(FORMAT),
            "rustdoc has another format: update `public-api` and `FORMAT` in tests/api"
        );
        names.add(name, &documented);
    }

    // By the name under which users find them.
    let mut items: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut facade = lines(&json("scoop"));
    facade.retain(|line| !names.is_shown(line));
    items.insert(String::new(), facade);
    for name in BEHIND {
        for (key, line) in names.of_crate(name, lines(&json(name))) {
            items.entry(key).or_default().push(line);
        }
    }
    // An implementation is with its type and with its trait.
    let write = |name: &str, mut lines: Vec<String>| {
        let mut written = HashSet::new();
        lines.retain(|line| written.insert(line.clone()));
        fs::write(Path::new(&listings).join(format!("{name}.txt")), lines.join("\n") + "\n")
            .expect("the folder is writable");
    };
    write("scoop", items.into_values().flatten().collect());
    for name in ["scoop_http", "scoop_web"] {
        write(name, without_implied(lines(&json(name))).iter().map(|line| names.rename(line)).collect());
    }
}

/// The lines of `public-api`.
fn lines(json: &Path) -> Vec<String> {
    let api = Builder::from_rustdoc_json(json).omit_auto_trait_impls(true).omit_blanket_impls(true);
    let api = api.omit_auto_derived_impls(true).build().expect("rustdoc writes JSON");
    let named = |line: String| match line.strip_prefix("pub proc macro ") {
        Some(name) if name.contains("#[derive(") => {
            format!("pub derive {}", name.replace("#[derive(", "").replace(")]", ""))
        }
        Some(name) => format!("pub attribute {}", name.replace("#[", "").replace(']', "")),
        None => line,
    };
    api.items().map(|item| named(item.to_string())).collect()
}

/// Leaves out the functions in implementations of traits: the traits have them.
fn without_implied(lines: Vec<String>) -> Vec<String> {
    let mut implements: Option<String> = None;
    let is_own = |line: &String| {
        if line.starts_with("impl") {
            implements = line.contains(" for ").then(|| subject(line).to_owned());
        }
        let of_trait = implements.as_ref().is_some_and(|of| is_below(subject(line), of));
        !(of_trait && line.contains(" fn ") && !line.starts_with("impl"))
    };
    lines.into_iter().filter(is_own).collect()
}

/// Where an item is: that of the line, or the type of an implementation.
fn subject(line: &str) -> &str {
    if line.starts_with("impl") {
        let end = line.rfind(" for ").map_or(0, |at| at + " for ".len());
        // Without the parameters and bounds.
        let mut depth = 0;
        let begin = line.find(|character| {
            depth += i32::from(character == '<') - i32::from(character == '>');
            depth == 0 && character == ' '
        });
        let named = &line[end.max(begin.unwrap_or(0))..];
        return paths(named).next().map_or("", |(path, _)| path);
    }
    let mut named = paths(line).map(|(path, _)| path);
    named.clone().find(|path| path.contains("::")).or_else(|| named.next_back()).unwrap_or("")
}

/// The paths and words of a line, with where they begin.
fn paths(line: &str) -> impl DoubleEndedIterator<Item = (&str, usize)> + Clone {
    let is_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = line.split(move |character| !is_path(character)).map(|word| word.trim_end_matches(':'));
    words.filter(|word| !word.is_empty()).map(|word| (word, word.as_ptr() as usize - line.as_ptr() as usize))
}

fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// What a module and those in it re-export, with the path of the module.
fn find_uses<'a>(index: &'a Value, module: &Value, path: &str, uses: &mut Vec<(String, &'a Value)>) {
    for id in index[module.to_string()]["inner"]["module"]["items"].as_array().into_iter().flatten() {
        let item = &index[id.to_string()];
        if let Some(used) = item["inner"].get("use") {
            uses.push((path.to_owned(), used));
        } else if let Some(name) = item["name"].as_str() {
            find_uses(index, id, &format!("{path}::{name}"), uses);
        }
    }
}

/// The names of the facade, by what they re-export.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Adds what a crate re-exports: the facade first.
    fn add(&mut self, name: &str, documented: &Value) {
        let mut uses = Vec::new();
        find_uses(&documented["index"], &documented["root"], name, &mut uses);
        for (module, used) in uses {
            let (source, name) =
                (used["source"].as_str().expect("a path"), used["name"].as_str().expect("a name"));
            let defined = documented["paths"][used["id"].to_string()]["path"].as_array();
            let defined =
                defined.map(|path| path.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("::"));
            let shown = self.rename(&format!("{module}::{name}"));
            // The prelude repeats names of the root.
            let is_named = is_below(&shown, "scoop") && module != "scoop::prelude" && name != "_";
            for path in [Some(source.to_owned()), defined].into_iter().flatten() {
                if is_named && BEHIND.iter().any(|of| is_below(&path, of)) {
                    self.0.entry(path).or_insert_with(|| shown.clone());
                }
            }
        }
    }

    /// The name of the facade for the beginning of a path, with the length of that beginning.
    fn find(&self, path: &str) -> Option<(&str, usize)> {
        let ends = path.rmatch_indices("::").map(|(at, _)| at);
        let mut ends = [path.len()].into_iter().chain(ends);
        ends.find_map(|end| self.0.get(&path[..end]).map(|name| (name.as_str(), end)))
    }

    /// Whether the line only says that the facade has an item which the listing has.
    fn is_shown(&self, line: &str) -> bool {
        line.strip_prefix("pub use ").is_some_and(|path| self.0.values().any(|name| name == path))
    }

    /// The lines about items that the facade re-exports.
    fn of_crate(&self, name: &str, lines: Vec<String>) -> Vec<(String, String)> {
        let mut shown = Vec::new();
        // That of the implementation above a line.
        let mut implemented = None;
        for line in without_implied(lines) {
            let key = self.find(subject(&line)).map(|(key, _)| key.to_owned());
            let is_foreign = !is_below(subject(&line), name);
            // An implementation for a foreign type is with its trait.
            let of_trait =
                || paths(&line).find_map(|(path, _)| self.find(path)).map(|(key, _)| key.to_owned());
            let key = match key {
                None if is_foreign && line.starts_with("impl") => of_trait(),
                None if is_foreign => implemented.clone(),
                key => key,
            };
            if line.starts_with("impl") {
                implemented.clone_from(&key);
            }
            let line = self.rename(&line);
            shown.extend(key.filter(|_| !self.is_shown(&line)).map(|key| (key, line)));
        }
        shown
    }

    /// The line with the names of the facade, and without the paths of the standard library.
    fn rename(&self, line: &str) -> String {
        let mut renamed = String::new();
        let mut end = 0;
        for (path, at) in paths(line) {
            renamed.push_str(&line[end..at]);
            end = at + path.len();
            let is_standard = ["core::", "alloc::", "std::"].iter().any(|of| path.starts_with(of));
            match self.find(path) {
                Some((name, length)) => renamed.extend([name, &path[length..]]),
                None if is_standard => renamed.push_str(path.rsplit("::").next().unwrap_or(path)),
                None => renamed.push_str(path),
            }
        }
        renamed + &line[end..]
    }
}
