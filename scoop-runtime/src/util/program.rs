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

/// The service of a program with this file name whose sagas are in these packages, if it names none: its package. Another program
/// with the same sagas, and one with sagas of several packages, has another file name.
pub(crate) fn service(packages: &BTreeSet<&str>, file_name: &str) -> String {
    // Cargo adds a hash to the names of tests.
    let is_hash = |text: &str| text.len() == 16 && text.chars().all(|it| it.is_ascii_hexdigit());
    let file =
        file_name.rsplit_once('-').filter(|(_, hash)| is_hash(hash)).map_or(file_name, |(name, _)| name);
    let printable: String = file.chars().filter(|it| !it.is_control()).take(100).collect();
    match (packages.first(), packages.len()) {
        (Some(package), 1) if package.replace('-', "_") == printable.replace('-', "_") => {
            (*package).to_owned()
        }
        (Some(package), 1) => format!("{package}/{printable}"),
        _ => printable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_package_or_has_the_name_of_the_file_too() {
        let service = |packages: &[&'static str], file| service(&packages.iter().copied().collect(), file);
        assert_eq!(service(&["shop-orders"], "shop-orders"), "shop-orders");
        assert_eq!(service(&["shop-orders"], "shop_orders-0123456789abcdef"), "shop-orders");
        assert_eq!(service(&["shop-sagas"], "web"), "shop-sagas/web");
        assert_eq!(service(&["orders", "payments"], "shop"), "shop");
        assert_eq!(service(&[], "client"), "client");
    }
}
