//! The name of the engine's connections in `pg_stat_activity`.

use sqlx::postgres::PgConnectOptions;

use crate::util::program::file_name;

/// The server cuts longer names, in bytes.
const NAME_BYTES_MAX: usize = 63;

const SUFFIX: &str = "/scoop";

/// The same options with the name of the engine: that of the user or else of the program, and `scoop`.
pub(super) fn named(options: PgConnectOptions) -> PgConnectOptions {
    let name = name(options.get_application_name(), &file_name());
    options.application_name(&name)
}

fn name(of_user: Option<&str>, program: &str) -> String {
    let prefix = of_user.filter(|name| !name.is_empty()).unwrap_or(program);
    // The server escapes each byte of other characters, with up to four bytes.
    let printable = prefix.chars().map(|it| if matches!(it, ' '..='~') { it } else { '?' });
    let prefix: String = printable.take(NAME_BYTES_MAX - SUFFIX.len()).collect();
    format!("{prefix}{SUFFIX}").trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_user_goes_before_that_of_the_program() {
        assert_eq!(name(None, "shop"), "shop/scoop");
        assert_eq!(name(Some(""), "shop"), "shop/scoop");
        assert_eq!(name(Some("till 3"), "shop"), "till 3/scoop");
        assert_eq!(name(None, ""), "scoop");
        assert_eq!(name(None, "obchod-žluťoučký"), "obchod-?lu?ou?k?/scoop");
    }

    #[test]
    fn name_has_at_most_63_bytes_and_its_end() {
        for long in ["x".repeat(63), "ž".repeat(63), "x".repeat(1_000)] {
            let name = name(Some(&long), "shop");
            assert_eq!(name.len(), NAME_BYTES_MAX);
            assert!(name.ends_with("/scoop"), "{name}");
        }
    }
}
