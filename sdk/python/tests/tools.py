"""What tests decorate with."""

from undolog_sdk import CompensationDescriptor, ToolTier, undolog_tool

SAFE, COMP, IRR = ToolTier.SAFE, ToolTier.COMPENSABLE, ToolTier.IRREVERSIBLE
UNDO = CompensationDescriptor.new("undo")


def tool(**options):
    """A compensable tool, whose undo nobody calls."""
    return undolog_tool(tier=COMP, compensation=UNDO, **options)
