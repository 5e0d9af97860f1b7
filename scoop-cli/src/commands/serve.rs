//! `scoop serve`

use std::net::SocketAddr;

use scoop_runtime::Scoop;
use scoop_web::Options;
use serde::Serialize;

use crate::fault::{Exit, Fault};
use crate::interrupt::interrupted;
use crate::output::Output;

/// Serve the web page, until the program is interrupted
///
/// It writes the URL, which has the token. There is no TLS: use a loopback address, with a tunnel or a proxy before it.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The address and port; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7676")]
    listen: SocketAddr,
    /// The token that visitors need, of 16 bytes or more; by default a random one. Set it as SCOOP_TOKEN: other users can see
    /// arguments
    #[arg(long, value_name = "TOKEN", env = "SCOOP_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Show no actions, and refuse them
    #[arg(long)]
    read_only: bool,
}

/// The address of the page.
#[derive(Serialize)]
struct PageRecord<'a> {
    url: &'a str,
}

/// Serves the page.
pub(crate) async fn serve(scoop: &Scoop, output: Output, args: ServeArgs) -> Result<Exit, Fault> {
    let ServeArgs { listen, token, read_only } = args;
    let mut options = Options::new();
    if let Some(token) = token {
        options = options.with_token(token).map_err(|weak| Fault::Usage(weak.to_string()))?;
    }
    if read_only {
        options = options.read_only();
    }
    let page = scoop_web::bind(listen, scoop.clone(), options).await;
    let page = page.map_err(|error| Fault::Bind(listen, error))?;
    // The handler of the signal is installed before the URL is written: a reader of it may interrupt at once.
    let mut interrupted = Box::pin(interrupted());
    tokio::select! {
        biased;
        () = &mut interrupted => return Ok(Exit::Success),
        () = std::future::ready(()) => {}
    }
    if output.json {
        output.record(&PageRecord { url: page.url() })?;
    } else {
        output.line(page.url())?;
    }
    page.until(interrupted).await?;
    Ok(Exit::Success)
}
