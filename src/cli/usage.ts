/** What is said of a call whose words are wrong. Help is printed when it is asked for, and not in its place. */
import { Console } from "effect"
import { CliOutput } from "effect/cli"
import { printable } from "./printable.ts"

/** The errors of the command line come as several lines; here each is one sentence. */
const sentence = (message: string): string =>
  message
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .join(" ")

/** As Effect's own, but an error is told on stderr, with the way to the help. */
export const presenter: CliOutput.Presenter = {
  present: (event) => {
    if (event._tag !== "InvalidInvocation") return CliOutput.defaultPresenter.present(event)
    const called = event.commandPath.join(" ")
    const sentences = event.errors.map(({ message }) => sentence(message))
    return Console.error(
      [
        ...sentences.map((text) => printable(`${called}: ${text}`)),
        `${called} --help says how it is used`
      ].join("\n")
    )
  }
}

export const layerUsage = CliOutput.layerPresenter(presenter)
