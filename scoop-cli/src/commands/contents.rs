//! `scoop contents`

use scoop_core::{Escaped, visible_step};
use scoop_operate::{Content, OperateExt as _};
use scoop_runtime::internal::ErrorKind;
use scoop_runtime::{IdKind, IdObject, RunId, RuntimeError, Scoop};

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

/// Shows the contents.
pub(crate) async fn show(scoop: &Scoop, output: Output, args: ContentsArgs) -> Result<Exit, Fault> {
    let explanation = scoop.operate().runs().explain(args.run).await?;
    let (IdObject::Run { .. }, Some(explained)) = (&explanation.named, explanation.runs.first()) else {
        let (id, named) = (args.run.uuid(), explanation.named.clone());
        return Err(RuntimeError::from(ErrorKind::WrongId { id, named, wanted: IdKind::Run }).into());
    };
    let contents = scoop.operate().runs().contents(&explained.run).await?;
    if output.json {
        output.record(&contents)?;
        return Ok(Exit::Success);
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
    Ok(Exit::Success)
}
