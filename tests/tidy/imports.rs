//! Imports of a crate, resolved through re-exports to the files that define what is imported.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::File;

/// The modules of a crate, by path such as `crate::store::memory`, and what their imports name.
#[derive(Default)]
pub(crate) struct Modules {
    files: BTreeMap<String, String>,
    /// By module and name. Private imports count, since submodules see them.
    names: BTreeMap<(String, String), Vec<String>>,
    /// Module, path: all imports, and all other paths from `crate`, `self` or `super`.
    paths: Vec<(String, Vec<String>)>,
}

impl Modules {
    /// Reads files, whose paths begin with this prefix.
    pub(crate) fn read(files: &[&File], prefix: &str) -> Self {
        let mut modules = Self::default();
        for file in files {
            let path = file.path.strip_prefix(prefix).expect("it is a file of the crate");
            modules.scan(path, &file.tokens);
        }
        modules
    }

    fn scan(&mut self, file: &str, tokens: &[String]) {
        let mut module = module_of(file);
        self.files.insert(module.clone(), file.into());
        // Depths of the modules within the file.
        let mut inner = Vec::new();
        let (mut depth, mut at) = (0, 0);
        let token = |at: usize| tokens.get(at).map_or("", |it| it.as_str());
        while at < tokens.len() {
            let before = if at > 0 { token(at - 1) } else { "" };
            match token(at) {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if inner.last() == Some(&depth) {
                        inner.pop();
                        module = parent(&module).into();
                    }
                }
                "mod" if token(at + 2) == "{" => {
                    inner.push(depth);
                    module = format!("{module}::{}", token(at + 1));
                    self.files.insert(module.clone(), file.into());
                }
                "use" if token(at + 1) != "<" => {
                    let mut imports = Vec::new();
                    at = expand(tokens, at + 1, &[], &mut imports);
                    for (path, name) in imports {
                        self.paths.push((module.clone(), path.clone()));
                        self.names.insert((module.clone(), name), path);
                    }
                }
                "crate" | "self" | "super" if token(at + 1) == "::" && before != "in" && before != "::" => {
                    let path =
                        (at..tokens.len()).step_by(2).take_while(|it| *it == at || token(it - 1) == "::");
                    self.paths.push((module.clone(), path.map(|it| tokens[it].clone()).collect()));
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The module that defines what a path names; `None` for what other crates define.
    fn resolve(&self, module: &str, path: &[String], depth: usize) -> Option<String> {
        let mut current = module.to_owned();
        for (at, part) in path.iter().enumerate() {
            let inner = format!("{current}::{part}");
            match &**part {
                "crate" => current = part.clone(),
                "self" => {}
                "super" => current = parent(&current).into(),
                _ if self.files.contains_key(&inner) => current = inner,
                _ => match self.names.get(&(current.clone(), part.clone())) {
                    // A macro is imported where it is defined, by its own name.
                    Some(import) if depth < 9 => {
                        let path = [import, &path[at + 1..]].concat();
                        return self.resolve(&current, &path, depth + 1);
                    }
                    None if at == 0 => return None,
                    _ => return Some(current),
                },
            }
        }
        Some(current)
    }

    /// From which file to which. `lib.rs` is left out.
    pub(crate) fn arrows(&self) -> BTreeSet<(String, String)> {
        let arrow = |(module, path): &(String, Vec<String>)| {
            let from = &self.files[module];
            let to = &self.files[&self.resolve(module, path, 0)?];
            (from != to && from != "lib.rs" && to != "lib.rs").then(|| (from.clone(), to.clone()))
        };
        self.paths.iter().filter_map(arrow).collect()
    }
}

/// The module of a file below `src`.
fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { "crate".into() } else { format!("crate::{}", path.replace('/', "::")) }
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or(module, |(parent, _)| parent)
}

/// Whether the module of one file contains that of the other one.
pub(crate) fn contains(one: &str, other: &str) -> bool {
    module_of(other).starts_with(&format!("{}::", module_of(one)))
}

/// Reads one tree of a `use`, and returns its end: the paths, and the names that they get.
fn expand(
    tokens: &[String],
    start: usize,
    prefix: &[String],
    found: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut at = start;
    loop {
        match &*tokens[at] {
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = expand(tokens, at, &path, found);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            "," | "}" | ";" | "as" => {
                path.pop_if(|last| last == "self");
                let is_renamed = tokens[at] == "as";
                let name = if is_renamed { Some(&tokens[at + 1]) } else { path.last() };
                found.push((path.clone(), name.cloned().unwrap_or_default()));
                return if is_renamed { at + 2 } else { at };
            }
            "::" | "$" => {}
            "*" => return at + 1,
            word => path.push(word.into()),
        }
        at += 1;
    }
}

/// The groups of more than two nodes that reach each other, largest first.
pub(crate) fn cycles(arrows: &BTreeSet<(String, String)>) -> Vec<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
    }
    let reached_from = |start| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(node) = open.pop() {
            open.extend(next.get(node).into_iter().flatten().filter(|to| reached.insert(**to)));
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reached_from(*from))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (node, others) in &reached {
        let goes_back = |other: &&str| reached.get(other).is_some_and(|it| it.contains(node));
        let circle: BTreeSet<&str> = others.iter().copied().filter(goes_back).collect();
        if circle.len() > 2 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

#[test]
fn import_through_re_exports_is_an_arrow_to_the_definition() {
    let file = |path: &str, code: &str| File {
        path: format!("src/{path}"),
        lines: 0,
        tokens: crate::source::tokens(code),
    };
    let files = [
        file("lib.rs", "mod a; mod b; pub use a::{Deep as Renamed, inner::{self}}; pub use std::fmt::Debug;"),
        file("a/mod.rs", "pub(crate) mod inner; pub use inner::Deep; pub(in crate::a) struct Here;"),
        file("a/inner.rs", "use super::{Here, super::b::B};"),
        file("b.rs", "use crate::{Debug, Renamed}; mod c { use super::super::inner::Other; }"),
        file("d.rs", "fn d() { crate::b::c::call::<u8>(); $crate::Renamed }"),
    ];
    let arrows = Modules::read(&files.each_ref(), "src/").arrows();
    let expected = [
        ("a/inner.rs", "a/mod.rs"),
        ("a/inner.rs", "b.rs"),
        ("a/mod.rs", "a/inner.rs"),
        ("b.rs", "a/inner.rs"),
        ("d.rs", "a/inner.rs"),
        ("d.rs", "b.rs"),
    ];
    assert_eq!(arrows, expected.map(|(from, to)| (from.into(), to.into())).into());
    assert_eq!(cycles(&arrows), [["a/inner.rs", "a/mod.rs", "b.rs"].into()]);
    assert!(contains("a/mod.rs", "a/inner.rs") && !contains("b.rs", "bc.rs"));
}
