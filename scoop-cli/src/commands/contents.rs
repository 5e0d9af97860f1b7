//! `scoop contents`

use scoop_core::{Escaped, visible_step};
use scoop_operate::{Content, OperateExt as _};
use scoop_runtime::{IdKind, IdObject, RunId, RuntimeError, Scoop};
use serde::Serialize;
use serde_json::Value;

use super::target::id;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// Show the message, the context and the values of a run
///
/// Fields that a type of messages redacts have the text `[redacted]` in place of their values.
#[derive(Debug, clap::Args)]
pub(crate) struct ContentsArgs {
    /// The id of the run
    #[arg(value_parser = id::<RunId>)]
    run: RunId,
}

/// The contents of a run.
#[derive(Serialize)]
struct ContentsRecord<'a> {
    message: Option<ContentRecord<'a>>,
    context: Option<ContentRecord<'a>>,
    values: Vec<ValueRecord<'a>>,
    complete: bool,
}

/// An output or a reply.
#[derive(Serialize)]
struct ValueRecord<'a> {
    step: Option<&'a str>,
    position: Option<u32>,
    name: &'a str,
    #[serde(flatten)]
    content: ContentRecord<'a>,
}

/// A value, or the reason for which it is left out.
#[derive(Serialize)]
struct ContentRecord<'a> {
    value: Option<&'a Value>,
    left_out: Option<&'a str>,
}

impl<'a> From<&'a Content> for ContentRecord<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Shown(value) => Self { value: Some(value), left_out: None },
            Content::LeftOut(reason) => Self { value: None, left_out: Some(reason) },
            _ => Self { value: None, left_out: Some("unknown") },
        }
    }
}

/// Shows the contents.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: ContentsArgs) -> Result<Exit, Fault> {
    let explanation = scoop.operate().runs().explain(args.run).await?;
    let (IdObject::Run { .. }, Some(explained)) = (&explanation.named, explanation.runs.first()) else {
        let (id, named) = (args.run.uuid(), explanation.named.clone());
        return Err(RuntimeError::WrongId { id, named, wanted: IdKind::Run }.into());
    };
    let contents = scoop.operate().runs().contents(&explained.run).await?;
    if output.json {
        let values = contents.values.iter().map(|value| ValueRecord {
            step: value.step.as_deref(),
            position: value.position,
            name: &value.name,
            content: (&value.value).into(),
        });
        output.record(&ContentsRecord {
            message: contents.message.as_ref().map(Into::into),
            context: contents.context.as_ref().map(Into::into),
            values: values.collect(),
            complete: contents.is_complete,
        })?;
        return Ok(Exit::Done);
    }
    let write = |name: &str, content: &Content| -> Result<(), Fault> {
        output.line(format_args!("{}:", Escaped(name)))?;
        for line in content.to_string().lines() {
            output.line(format_args!("  {}", Escaped(line)))?;
        }
        Ok(())
    };
    if let Some(message) = &contents.message {
        write("message", message)?;
    }
    if let Some(context) = &contents.context {
        write("context", context)?;
    }
    for value in &contents.values {
        let name = match &value.step {
            Some(step) => format!("output of {}", visible_step(step)),
            None => format!("reply {}", value.name),
        };
        write(&name, &value.value)?;
    }
    if !contents.is_complete {
        output.remark("more values were left out");
    }
    Ok(Exit::Done)
}
