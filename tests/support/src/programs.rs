//! One program on a database of its own, and one hierarchy in it.

use scoop::{Builder, Handle, Message, Outcome, Result, RuntimeError, Saga, Scoop};

use crate::{Calls, Ends as _, History, calls_of};

/// A database of one test, on one of the stores.
#[allow(async_fn_in_trait, reason = "tests await it where they call it")]
pub trait Store: Sized {
    /// An empty database with all tables.
    async fn create() -> Self;

    /// The builder of a program on this database. `.only::<..>()` chooses its sagas, since those of all tests are
    /// linked.
    fn scoop(&self) -> Builder;

    /// All recorded events.
    async fn history(&self) -> History;

    /// Starts a program with these sagas only.
    async fn start(&self, sagas: impl Sagas) -> Result<Scoop, RuntimeError> {
        sagas.only(self.scoop()).start().await
    }
}

/// The sagas of a program, as a tuple.
pub trait Sagas {
    /// The program with these sagas only.
    fn only(self, builder: Builder) -> Builder;
}

macro_rules! sagas {
    ($($saga:ident)+) => {
        impl<$($saga: Saga),+> Sagas for ($($saga,)+) {
            #[allow(non_snake_case, reason = "a value is named like its type")]
            fn only(self, builder: Builder) -> Builder {
                let ($($saga,)+) = self;
                builder$(.only::<$saga>().provide($saga))+
            }
        }
    };
}

sagas!(A);
sagas!(A B);
sagas!(A B C);
sagas!(A B C D);
sagas!(A B C D E);

/// A hierarchy in a database of its own, with the program that runs it.
pub struct Run<D> {
    /// The database.
    pub db: D,
    /// The program.
    pub scoop: Scoop,
    /// The hierarchy.
    pub root: Handle,
}

impl<D: Store> Run<D> {
    /// Starts a program with these sagas only, and launches the message.
    ///
    /// # Errors
    ///
    /// If the program does not start, or the launch fails.
    pub async fn launch(sagas: impl Sagas, message: impl Message) -> Result<Self> {
        let db = D::create().await;
        let scoop = db.start(sagas).await?;
        let root = scoop.launch(message).await?;
        Ok(Self { db, scoop, root })
    }

    /// The same, up to the end of the hierarchy. Fails unless that commits.
    ///
    /// # Errors
    ///
    /// Those of [`Run::launch`], and of the wait.
    pub async fn commits(sagas: impl Sagas, message: impl Message) -> Result<Self> {
        let run = Self::launch(sagas, message).await?;
        assert_eq!(run.root.ends().await?, Outcome::Committed);
        Ok(run)
    }

    /// The same. Fails unless the hierarchy rolls back.
    ///
    /// # Errors
    ///
    /// Those of [`Run::commits`].
    pub async fn rolls_back(sagas: impl Sagas, message: impl Message) -> Result<Self> {
        let run = Self::launch(sagas, message).await?;
        let outcome = run.root.ends().await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
        Ok(run)
    }

    /// The same. Fails unless the rollback of the hierarchy fails.
    ///
    /// # Errors
    ///
    /// Those of [`Run::commits`].
    pub async fn fails_to_roll_back(sagas: impl Sagas, message: impl Message) -> Result<Self> {
        let run = Self::launch(sagas, message).await?;
        let outcome = run.root.ends().await?;
        assert!(matches!(outcome, Outcome::RollbackFailed(_)), "{outcome:?}");
        Ok(run)
    }

    /// All recorded events.
    pub async fn history(&self) -> History {
        self.db.history().await
    }

    /// The calls of user code in the hierarchy.
    pub fn calls(&self) -> Calls {
        calls_of(&self.root)
    }
}
