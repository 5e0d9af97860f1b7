use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga]
#[subscribes(scoop::Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &scoop::Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
