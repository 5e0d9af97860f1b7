//! The ends of a command: exit codes, and errors with their texts.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use scoop_core::Escaped;
use scoop_operate::OperateError;
use scoop_runtime::internal::ErrorKind;
use scoop_runtime::{RuntimeError, SetupError};

use crate::times::{in_words, utc};

/// The exit code of the program. `args::EXIT_CODES` describes them for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command is done.
    Success = 0,
    /// The command failed.
    Failed = 1,
    /// The command line is wrong. The parser exits with the same code.
    Usage = 2,
    /// Nothing has the given id or name, or the request was not accepted.
    NotAccepted = 3,
    /// `doctor` found a problem.
    Problems = 4,
}

impl Exit {
    /// The end of a command that has made a change, after its result was written: the exit code tells the result also to a caller
    /// that does not read the output.
    pub(crate) fn despite(self, written: Result<(), impl Into<Fault>>) -> Result<Self, Fault> {
        match written.map_err(Into::into) {
            Err(fault) if fault.exit() != Self::Success => Err(fault),
            _ => Ok(self),
        }
    }
}

/// An error of a command.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error of the library.
    Library(OperateError),
    /// A statement of this program failed, while something was done.
    Sql(&'static str, sqlx::Error),
    /// No connection can be opened: where it would lead to, and the error.
    Connect(String, sqlx::Error),
    /// The output cannot be written.
    Output(io::Error),
    /// An address cannot be bound.
    Bind(SocketAddr, io::Error),
    /// The command line, or a file that it names, is wrong.
    Usage(String),
    /// Nothing has the given name.
    NotFound(String),
    /// The request is not possible now.
    Refused(String),
    /// The user answered the question with no.
    Declined,
}

impl From<RuntimeError> for Fault {
    fn from(error: RuntimeError) -> Self {
        // In the words of the command line.
        match error.kind() {
            ErrorKind::QueueFull { saga, limit, waited, .. } => {
                let still = waited.map(|waited| format!(" after {}", in_words(waited))).unwrap_or_default();
                Self::Refused(format!(
                    "the queue of saga `{saga}` is full{still}: at most {limit} of its runs may wait for a worker; nothing was \
                     launched; launch again later, or let the launch wait by --wait-for-capacity; for more capacity, end a pause \
                     of the saga, start more processes with it, or raise its `queue`, `concurrency` or `rate`"
                ))
            }
            _ => Self::Library(error.into()),
        }
    }
}

impl From<OperateError> for Fault {
    fn from(error: OperateError) -> Self {
        Self::Library(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Fault {
    /// The error of a statement of this program, for `map_err`.
    pub(crate) fn sql(doing: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |error| Self::Sql(doing, error)
    }

    /// The exit code for this error.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            // The reader of the output has ended, such as `head`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Self::Library(error) if error.is_not_found() || error.is_damaged() => Exit::NotAccepted,
            Self::NotFound(_) | Self::Refused(_) | Self::Declined => Exit::NotAccepted,
            Self::Library(error) if error.is_invalid() => Exit::Usage,
            Self::Library(_) | Self::Sql(..) | Self::Connect(..) | Self::Output(_) | Self::Bind(..) => {
                Exit::Failed
            }
            Self::Usage(_) => Exit::Usage,
        }
    }

    /// Writes the error, with its causes, to standard error.
    pub(crate) fn report(&self) {
        match self {
            Self::Declined => eprintln!("nothing was done"),
            _ if self.exit() == Exit::Success => {}
            _ => eprintln!("error: {}", self.text()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Library(error) if !error.setup().is_empty() => {
                let setup = error.setup();
                let mistakes: Vec<_> = setup.iter().map(|it| Escaped(&mistake(it)).to_string()).collect();
                let is_old = |it: &SetupError| {
                    matches!(it, SetupError::NoTables { .. } | SetupError::SchemaTooOld { .. })
                };
                let hint =
                    if setup.iter().any(is_old) { "\nhint: `scoop migrate` makes the tables" } else { "" };
                mistakes.join("\nerror: ") + hint
            }
            // Its text has that of the server.
            Self::Library(error) if error.is_denied() => Escaped(&error.to_string()).to_string(),
            Self::Library(error) => chain(error),
            Self::Sql(doing, error) => format!("the database failed while {doing}: {}", chain(error)),
            Self::Connect(target, error) => format!(
                "the database failed while a connection was opened: {}; {}",
                chain(error),
                Escaped(target)
            ),
            Self::Output(error) => format!("the output cannot be written: {}", chain(error)),
            Self::Bind(address, error) => format!("{address} cannot be bound: {}", chain(error)),
            Self::Declined => String::new(),
            Self::Usage(text) | Self::NotFound(text) | Self::Refused(text) => Escaped(text).to_string(),
        }
    }
}

/// A mistake, with advice for a command line: it works on the schema that the programs have.
fn mistake(mistake: &SetupError) -> String {
    const OTHER_VERSION: &str = "use the command line of the version of the programs";
    match mistake {
        SetupError::SchemaDiffers { schema, version, found, applied_at, known } => format!(
            "schema `{schema}` was made by another build of scoop: its migration {version} has the checksum {found} in the \
             database (applied {}), but {known} in this command line; {OTHER_VERSION}",
            utc(*applied_at)
        ),
        SetupError::SchemaTooNew { schema, found, known } => format!(
            "schema `{schema}` is of version {found}, and this command line knows versions up to {known}; \
             {OTHER_VERSION}"
        ),
        _ => mistake.to_string(),
    }
}

/// The error with its causes, each line escaped.
fn chain(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut cause) = (String::new(), Some(error));
    while let Some(error) = cause {
        // The text of an error of the server ends with a line of the source of the server.
        let of_server = error.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
        let words = match of_server {
            Some(of_server) => format!("error returned from database: {}", of_server.message()),
            None => error.to_string(),
        };
        let words = Escaped(&words).to_string();
        if text.is_empty() {
            text = words;
        } else if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = if of_server.is_some() { None } else { error.source() };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_of_a_change_counts_although_the_reader_of_the_output_has_ended() {
        let written = |kind: io::ErrorKind| Err::<(), _>(io::Error::from(kind));
        let closed = Exit::NotAccepted.despite(written(io::ErrorKind::BrokenPipe));
        assert!(matches!(closed, Ok(Exit::NotAccepted)), "{closed:?}");
        let full = Exit::NotAccepted.despite(written(io::ErrorKind::StorageFull));
        assert!(matches!(full, Err(Fault::Output(_))), "{full:?}");
    }

    #[test]
    fn schema_of_another_version_names_both_and_asks_for_the_command_line_of_that_version() {
        let schema = || "scoop".to_owned();
        let differs = SetupError::SchemaDiffers {
            schema: schema(),
            version: 2,
            found: "0a1b".into(),
            applied_at: std::time::UNIX_EPOCH,
            known: "2c3d".into(),
        };
        let too_new = SetupError::SchemaTooNew { schema: schema(), found: 4, known: 3 };
        for (it, both) in [
            (differs, ["0a1b in the database (applied 1970-01-01T", "but 2c3d in this command line"]),
            (too_new, ["of version 4", "versions up to 3"]),
        ] {
            let text = Fault::from(RuntimeError::from(vec![it])).text();
            assert!(both.iter().all(|part| text.contains(part)), "{text}");
            assert!(text.ends_with("use the command line of the version of the programs"), "{text}");
        }
    }
}
