//! Serves the page alone, on an address of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use scoop_runtime::Scoop;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::live::Live;
use crate::secret::Secret;
use crate::{Options, Web, routes};

/// A page with an address, about to be served by [`Serving::until`].
pub struct Serving {
    listener: TcpListener,
    router: Router,
    url: String,
    stopped: CancellationToken,
}

/// Binds the page to an address: `127.0.0.1:0` for any free port of this machine.
///
/// `/live` and `/ready` beside the page are those of [`health`](crate::health()), and need no token.
///
/// The page is served without TLS. Bind it to a loopback address, and let a proxy or a tunnel do the rest. Without a token it
/// answers only requests for loopback names, and for [other hosts](Options::hosts) if these are set.
///
/// # Errors
///
/// If the address cannot be bound; or if it is not that of a loopback interface, and the page has no token.
///
/// # Cancel safety
///
/// Nothing is bound if the future is dropped.
///
/// ```no_run
/// # async fn example(scoop: scoop_runtime::Scoop) -> std::io::Result<()> {
/// let page = scoop_web::bind(([127, 0, 0, 1], 7676), scoop, scoop_web::Options::new()).await?;
/// println!("{}", page.url());
/// page.until(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await
/// # }
/// ```
pub async fn bind(address: impl Into<SocketAddr>, scoop: Scoop, options: Options) -> io::Result<Serving> {
    let address = address.into();
    if options.token().is_none() && !address.ip().is_loopback() {
        let why = format!("{address} can be reached from other machines, and the web page has no token");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let listener = TcpListener::bind(address).await?;
    let query = options.token().map_or_else(String::new, |token| crate::shown::query([("token", token)]));
    let url = format!("http://{}/{query}", listener.local_addr()?);
    let live = Live::new(scoop.clone());
    let stopped = live.stopped();
    let options = options.on_loopback();
    let health = crate::health(scoop.clone());
    let router =
        routes(Arc::new(Web { secret: Secret::of(options.token()), scoop, options, live })).merge(health);
    Ok(Serving { listener, router, url, stopped })
}

impl Serving {
    /// The URL of the page, with the token.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves the page until `shutdown` completes and the requests in progress are answered.
    ///
    /// # Errors
    ///
    /// If the operating system cannot serve the address.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the page without waiting for requests in progress.
    pub async fn until(self, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let Self { listener, router, stopped, .. } = self;
        let shutdown = async move {
            shutdown.await;
            stopped.cancel();
        };
        axum::serve(listener, router).with_graceful_shutdown(shutdown).await
    }
}
