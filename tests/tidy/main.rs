//! The rules of the source tree: the order of layers, import cycles, lengths of files, places of SQL, words
//! of names, and budgets of size. `rules.rs` has the layers and the numbers.
//!
//! `cargo test --test tidy -- --nocapture table` shows all numbers beside their targets.

mod imports;
mod measures;
mod rules;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use crate::imports::Modules;
use crate::rules::{
    BANNED, BUDGETS, DEVELOPMENT, EXTERNAL, FILE_LINES_MAX, LAYERS, PRODUCT, SQL_FOLDERS, SQL_TEXTS,
};
use crate::source::File;

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const RUNTIME: &str = "scoop-runtime/src/";

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let folders = PRODUCT.split_whitespace().chain(DEVELOPMENT.split_whitespace());
    folders.flat_map(|folder| source::files(Path::new(ROOT), folder)).collect()
});

/// What was found, by a name for it.
type Found = BTreeMap<String, Vec<String>>;

/// The files of the product.
fn product() -> impl Iterator<Item = &'static File> {
    FILES.iter().filter(|file| DEVELOPMENT.split(' ').all(|folder| !file.path.starts_with(folder)))
}

/// The imports within the runtime, from file to file.
fn arrows() -> BTreeSet<(String, String)> {
    let files: Vec<_> = FILES.iter().filter(|file| file.path.starts_with(RUNTIME)).collect();
    Modules::read(&files, RUNTIME).arrows()
}

/// Compares a number with its budget. A large one may fall by 2 % before its budget has to follow.
fn compare(what: &str, measured: usize, budget: usize) -> Option<String> {
    let may_fall = if budget > 1000 { budget / 50 } else { 0 };
    if measured > budget {
        Some(format!("{what}: {measured}, but the budget is {budget}"))
    } else if measured + may_fall < budget {
        Some(format!("lower the budget of {what} to {measured} in tests/tidy/rules.rs (it is {budget})"))
    } else {
        None
    }
}

/// Compares how much was found with budgets. What is missing is zero.
fn compare_all(found: &Found, budgets: impl IntoIterator<Item = (String, usize)>) -> Vec<String> {
    let budgets: BTreeMap<_, _> = budgets.into_iter().collect();
    let names: BTreeSet<_> = found.keys().chain(budgets.keys()).collect();
    let problem = |name: &String| {
        let found = found.get(name).map_or(&[][..], |it| it);
        let problem = compare(name, found.len(), budgets.get(name).copied().unwrap_or(0))?;
        Some(found.iter().fold(problem, |problem, it| format!("{problem}\n    {it}")))
    };
    names.into_iter().filter_map(problem).collect()
}

fn check(problems: &[String], remedy: &str) {
    assert!(problems.is_empty(), "\n{}\n\nIf a number is above its budget: {remedy}.\n", problems.join("\n"));
}

/// The module of the runtime at the top of a file's path.
fn layer(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or_default()
}

fn height(layer: &str) -> Option<usize> {
    LAYERS.iter().flat_map(|layers| layers.split(' ')).position(|it| it == layer)
}

#[test]
fn module_of_the_runtime_has_a_layer() {
    let layers = FILES.iter().filter_map(|file| file.path.strip_prefix(RUNTIME)).map(layer);
    let unknown: BTreeSet<_> = layers.filter(|layer| *layer != "lib" && height(layer).is_none()).collect();
    assert!(unknown.is_empty(), "add to LAYERS in tests/tidy/rules.rs, above what they import: {unknown:?}");
}

#[test]
fn import_goes_down_the_layers() {
    let upward = arrows().into_iter().filter(|(from, to)| height(layer(from)) < height(layer(to)));
    check(
        &upward.map(|(from, to)| format!("{from} imports from {to}")).collect::<Vec<_>>(),
        "a layer imports from those before it in LAYERS. Move down what both need, plain values to \
         `model/`; or move up the code that imports it",
    );
}

#[test]
fn files_import_each_other_in_no_circle() {
    let mut arrows = arrows();
    // A module and what it contains are one thing.
    arrows.retain(|(from, to)| !imports::contains(from, to) && !imports::contains(to, from));
    let cycles = imports::cycles(&arrows).into_iter();
    check(
        &cycles.map(|files| format!("these files import each other: {files:?}")).collect::<Vec<_>>(),
        "find the new import between these files in your change, and move what it names to a file that \
         imports from none of them",
    );
}

#[test]
fn no_file_is_long() {
    let long = product().filter(|file| file.lines > FILE_LINES_MAX);
    check(
        &long.map(|file| format!("{} has {} lines", file.path, file.lines)).collect::<Vec<_>>(),
        &format!("split it by subject, into files of up to {FILE_LINES_MAX} lines of code"),
    );
}

#[test]
fn sql_is_in_the_folders_of_sql() {
    let name = |path: &str| format!("SQL in {path}");
    let mut found = Found::new();
    for file in product() {
        for text in file.tokens.iter().filter(|token| source::is_sql(token)) {
            found.entry(name(&file.path)).or_default().push(text.clone());
        }
    }
    for folder in PRODUCT.split_whitespace().filter(|folder| *folder != ".") {
        for path in source::paths(&Path::new(ROOT).join(folder), "sql") {
            let path = path.strip_prefix(ROOT).expect("it is below the root");
            found.insert(name(&path.display().to_string()), vec!["the whole file".into()]);
        }
    }
    found.retain(|path, _| !SQL_FOLDERS.iter().any(|folder| path.starts_with(&name(folder))));
    check(
        &compare_all(&found, SQL_TEXTS.iter().map(|(path, texts)| (name(path), *texts))),
        "move the statement to a file in scoop-runtime/sql, with a function in store/postgres; what only \
         operators read, to scoop-operate",
    );
}

#[test]
fn banned_word_is_in_no_name() {
    let banned: BTreeSet<_> = BANNED.split_whitespace().collect();
    let is_banned = |name: &str| source::words(name).iter().any(|word| banned.contains(&**word));
    let mut names = BTreeMap::new();
    for file in product() {
        let found = file.tokens.iter().filter(|token| source::is_name(token) && is_banned(token));
        names.extend(found.map(|name| (&**name, &*file.path)));
    }
    for (external, of) in EXTERNAL {
        let found = names.remove(external);
        assert!(
            found.is_some(),
            "remove {external} of {of} from EXTERNAL in tests/tidy/rules.rs: it is not used"
        );
    }
    let names: Vec<_> = names.iter().map(|(name, path)| format!("{name} ({path})")).collect();
    assert!(names.is_empty(), "rename with words of the glossary:\n    {}", names.join("\n    "));
}

#[test]
fn size_stays_within_its_budget() {
    let measured = measures::all(&FILES);
    let is_unknown = |what: &&String| BUDGETS.iter().all(|(known, ..)| known != *what);
    let unknown: Vec<_> = measured.keys().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "add them to BUDGETS in tests/tidy/rules.rs: {unknown:?}");
    let compare_one = |(what, budget, target): &(&str, usize, usize)| {
        let measured = measured.get(*what).copied().unwrap_or(0);
        // A budget needs not go below its target.
        compare(what, measured, *budget).filter(|_| measured > *budget || budget > target)
    };
    check(
        &BUDGETS.iter().filter_map(compare_one).collect::<Vec<_>>(),
        "remove something else of its kind. If that cannot be, raise the budget in tests/tidy/rules.rs, \
         with a comment above its line that says why",
    );
}

#[test]
fn table_of_measures_is_shown() {
    let measured = measures::all(&FILES);
    println!("{:<40} {:>9} {:>9} {:>9}", "", "measured", "budget", "target");
    let mut total = (0, 0, 0);
    for (what, budget, target) in BUDGETS {
        let measured = measured.get(*what).copied().unwrap_or(0);
        println!("{what:<40} {measured:>9} {budget:>9} {target:>9}");
        if what.starts_with("Rust lines") {
            total = (total.0 + measured, total.1 + budget, total.2 + target);
        }
    }
    println!("{:<40} {:>9} {:>9} {:>9}", "Rust lines in total", total.0, total.1, total.2);
}

#[test]
fn number_off_its_budget_is_reported() {
    assert_eq!(compare("x", 7, 7), None);
    assert_eq!(compare("x", 981, 1001), None);
    assert_eq!(compare("x", 8, 7).unwrap(), "x: 8, but the budget is 7");
    for (measured, budget) in [(6, 7), (980, 1001)] {
        let problem = compare("x", measured, budget).unwrap();
        assert!(problem.starts_with(&format!("lower the budget of x to {measured} ")), "{problem}");
    }
    let found = Found::from([("new".to_owned(), vec!["in x".to_owned()])]);
    let problems = compare_all(&found, [("gone".to_owned(), 1)]);
    assert!(problems[0].starts_with("lower the budget of gone to 0 "), "{problems:?}");
    assert_eq!(problems[1], "new: 1, but the budget is 0\n    in x");
}
