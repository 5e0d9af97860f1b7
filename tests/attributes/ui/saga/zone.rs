#![allow(unused)]
include!("../orders.rs");

mod zone_and_cron_wrong {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(cron = "61 3 * * *", zone = "the moon")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod zone_unknown {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(cron = "0 3 * * *", zone = "Europe/Praque")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod zone_without_cron {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1h", zone = "Europe/Prague")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
