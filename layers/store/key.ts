/** Object keys as paths in a directory. Keys are hostile. */

/** Why no file can have this key; undefined when one can. */
export const keyProblem = (objectKey: string): string | undefined => {
  const parts = objectKey.split("/")
  if (objectKey.includes("\0")) return "the key holds a NUL character"
  if (objectKey.startsWith("/"))
    return "the key is an absolute path; keys are relative to the store's directory"
  if (parts.includes("")) return "the key has an empty part between slashes"
  if (parts.includes(".") || parts.includes("..")) return "the key has a part '.' or '..'"
  if (parts.some((part) => Buffer.byteLength(part) > 255)) {
    return "a part of the key is longer than a file's name can be (255 bytes)"
  }
  return undefined
}
