//! The names of the program that runs.

use std::collections::BTreeSet;
use std::path::Path;

/// The name of the file that runs, without the suffix of programs.
pub(crate) fn file_name() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(&name).to_owned()
}

/// The service of a program with this file name whose sagas are in these packages, if it names none: the package, if it is only one.
pub(crate) fn service(packages: &BTreeSet<&str>, file_name: &str) -> String {
    match (packages.first(), packages.len()) {
        (Some(package), 1) => (*package).to_owned(),
        _ => file_name.chars().filter(|it| !it.is_control()).take(100).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_package_or_the_file_of_several() {
        let service = |packages: &[&'static str], file| service(&packages.iter().copied().collect(), file);
        assert_eq!(service(&["shop-sagas"], "web"), "shop-sagas");
        assert_eq!(service(&["orders", "payments"], "shop\n"), "shop");
        assert_eq!(service(&[], "client"), "client");
    }
}
