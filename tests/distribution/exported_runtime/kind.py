"""As those who decide see it. No torch."""

from autocompile.runtime.kind import Kind, Lines


class Exported(Kind):
    name = "exported"
    meaning = "torch.export's program, interpreted"
    implementation = "exported_runtime.runtime"
    compiles = "build"
    packs_as = "load"
    library = "exported-runtime"

    def holds_weights(self, plan):
        return True

    def problem(self, around):
        return "" if around.is_module else "a function cannot be exported"

    def lines(self, _plan):
        return Lines(setup=("compiled = torch.export.export(model, args).module()",))


KIND = Exported()
