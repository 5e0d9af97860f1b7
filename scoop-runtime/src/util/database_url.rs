//! The URL of a database.

use sqlx::postgres::PgConnectOptions;

/// The options of connections to the database of this URL.
///
/// The parser of the options accepts any scheme: `localhost:5432` would be the scheme `localhost`, and lead to the default
/// database.
///
/// # Errors
///
/// If it is no URL of a PostgreSQL database. The text does not repeat the URL, which may have a password.
pub fn connect_options(url: &str) -> sqlx::Result<PgConnectOptions> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if !matches!(scheme, Some("postgres" | "postgresql")) {
        let why = "a URL of a database begins with `postgres://`, as in `postgres://user@host:5432/database`";
        return Err(sqlx::Error::Configuration(why.into()));
    }
    url.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_without_the_scheme_of_postgresql_is_refused() {
        for url in ["localhost:5477", "localhost", "user:secret@host/database", "mysql://host/database", ""] {
            let error = connect_options(url).expect_err(url).to_string();
            assert!(error.contains("begins with `postgres://`") && !error.contains("secret"), "{error}");
        }
        let options = connect_options("postgresql://ada@db:5477/shop").expect("it is one");
        assert_eq!((options.get_host(), options.get_port()), ("db", 5477));
    }
}
