//! The command line: the data of the shop, and the folders that must outlive the process.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use scoop::Builder;
use scoop::prelude::*;

pub const HELP: &str = "\
A checkout across four services.

  --data <folder>    products.csv, orders.csv and order-details.csv, as Northwind has them
  --state <folder>   keeps the private PostgreSQL and the provider's ledger there: killed and
                     started again, the shop goes on; one folder for one shop; without it
                     everything is temporary
  --stock-times <n>  so many times the stock that products.csv lists
  --quiet            no progress
  --serve            shows the shop in a browser: writes the URL of the web page, and goes on placing
                     orders until Ctrl+C; the payment provider refuses the first refund, for
                     which an operator is needed
  --every <time>     with --serve: the time between two orders, such as 250ms; by default 1s

With DATABASE_URL set, that database is used, by as many processes as you like.
";

pub struct Settings {
    pub data: PathBuf,
    pub stock_times: i32,
    pub quiet: bool,
    pub serve: bool,
    /// The time between two of the orders that are placed while the page is served.
    pub every: Duration,
    state: Option<PathBuf>,
}

impl Settings {
    /// None if help is wanted.
    pub fn from_arguments() -> Result<Option<Self>> {
        let mut settings = Self {
            data: concat!(env!("CARGO_MANIFEST_DIR"), "/data").into(),
            stock_times: 1,
            quiet: false,
            serve: false,
            every: Duration::from_secs(1),
            state: None,
        };
        let mut arguments = env::args().skip(1);
        while let Some(name) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.ok_or_else(|| Error::msg(format!("{name} needs a value")))
            };
            match &*name {
                "--data" => settings.data = value()?.into(),
                "--state" => settings.state = Some(value()?.into()),
                "--stock-times" => settings.stock_times = value()?.parse()?,
                "--quiet" => settings.quiet = true,
                "--serve" => settings.serve = true,
                "--every" => settings.every = duration(&value()?)?,
                "--help" => return Ok(None),
                _ => return Err(Error::msg(format!("{name} is not known; see --help"))),
            }
        }
        Ok(Some(settings))
    }

    /// Either way, `DATABASE_URL` comes first if it is set.
    pub fn choose_database(&self, builder: Builder) -> Builder {
        match &self.state {
            Some(folder) => builder.embedded_in(folder.join("postgres")),
            None => builder.embedded(),
        }
    }

    /// The folder of the provider's ledger. All processes on one database must use the same.
    pub fn ledger_folder(&self) -> PathBuf {
        match (&self.state, env::var("DATABASE_URL")) {
            (Some(folder), _) => folder.clone(),
            (None, Ok(url)) => {
                let mut hasher = DefaultHasher::new();
                url.hash(&mut hasher);
                env::temp_dir().join(format!("scoop-checkout-{:x}", hasher.finish()))
            }
            (None, Err(_)) => temporary(),
        }
    }

    /// Removes the ledger together with its database.
    pub fn clear_up(&self) {
        if self.state.is_none() {
            let _ = fs::remove_dir_all(temporary());
        }
    }
}

/// Parses `250ms` and `2s`.
fn duration(text: &str) -> Result<Duration> {
    let parsed = match text.strip_suffix("ms") {
        Some(millis) => millis.parse().map(Duration::from_millis),
        None => text.strip_suffix('s').unwrap_or_default().parse().map(Duration::from_secs),
    };
    parsed.map_err(|_| Error::msg(format!("{text} is no time: write 250ms or 2s")))
}

fn temporary() -> PathBuf {
    env::temp_dir().join(format!("scoop-checkout-{}", std::process::id()))
}
