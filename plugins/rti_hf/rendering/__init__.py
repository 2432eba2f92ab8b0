"""What the chat renderers share: encoding that cannot be forged, tool-call formats, thinking."""
