//! `scoop register`

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use scoop_core::Escaped;
use scoop_operate::OperateExt as _;
use scoop_runtime::Scoop;
use serde::{Deserialize, Serialize};

use super::lock_file;
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::{Output, counted};

/// Register the handlers of a program that has not started yet, from its lock file, so that messages wait for it
///
/// Messages that are launched from now on get a run for each of the handlers, which begins when the program starts. A program
/// registers its handlers by itself when it starts; until then, its messages would have no handler. A saga that is registered under
/// a former name is left out: its program renames it when it starts. `scoop retire` undoes a registration.
#[derive(Debug, clap::Args)]
pub(crate) struct RegisterArgs {
    /// The lock file of the program
    file: PathBuf,
    #[command(flatten)]
    consent: Consent,
}

/// The part of a lock file that is read here.
#[derive(Deserialize)]
struct Lock {
    sagas: BTreeMap<String, Saga>,
}

#[derive(Deserialize)]
struct Saga {
    topics: BTreeSet<String>,
    #[serde(default)]
    was: Vec<String>,
}

/// A handler that was registered.
#[derive(Serialize)]
struct RegisterRecord<'a> {
    topic: &'a str,
    saga: &'a str,
}

/// Registers the handlers that are not registered yet.
pub(crate) async fn register(scoop: &Scoop, output: Output, args: RegisterArgs) -> Result<Exit, Fault> {
    let RegisterArgs { file, consent } = args;
    let lock: Lock = lock_file::read(&file)?;
    let registered = scoop.operate().handlers().list().await?;
    let each = || {
        lock.sagas.iter().flat_map(|(name, saga)| saga.topics.iter().map(move |topic| (topic, name, saga)))
    };
    let is_new = |(topic, name, saga): &(&String, &String, &Saga)| {
        let is_known = |handler: &String| handler == *name || saga.was.contains(handler);
        !registered.iter().any(|it| it.topic == **topic && is_known(&it.handler))
    };
    let new: Vec<_> = each().filter(is_new).collect();
    let handlers = |count: usize| counted(count, "handler", "handlers");
    if new.is_empty() {
        if !output.json {
            output.line(format_args!("nothing to do: {} registered already", handlers(each().count())))?;
        }
        return Ok(Exit::Success);
    }
    let named: Vec<_> = new.iter().map(|(topic, name, _)| format!("`{name}` on `{topic}`")).collect();
    let change = format!("register {}: {}", handlers(new.len()), Escaped(&named.join(", ")));
    if !consent.to(output, &change)? {
        return Ok(Exit::Success);
    }
    for (topic, name, _) in &new {
        scoop.operate().handlers().register(*topic, *name).await?;
        if output.json {
            output.record(&RegisterRecord { topic, saga: name })?;
        }
    }
    if !output.json {
        output.line(format_args!("registered {}", handlers(new.len())))?;
    }
    Ok(Exit::Success)
}
